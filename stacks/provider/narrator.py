"""Lines in the engine's own display, beside the resource they are about."""

from __future__ import annotations

import logging
from collections.abc import Callable

import grpc

from stacks.provider import stubs

__all__ = ["Narrator"]

_log = logging.getLogger(__name__)

LOG_SECONDS = 10.0
"""One line to a process on the same machine; longer, and the engine is gone (see guardian)."""


class Narrator:
    """Sends lines to the engine, from any thread. Without an engine address (tests) they go to ``fallback``."""

    def __init__(self, address: str | None, fallback: Callable[[str, str], None] | None = None) -> None:
        self._stub = stubs.engine_grpc.EngineStub(grpc.insecure_channel(address)) if address else None
        self._fallback = fallback or (lambda urn, line: _log.info("%s %s", urn, line))

    def status(self, urn: str, line: str) -> None:
        """What goes on now; the next line replaces it."""
        self._send(urn, line, stubs.engine.LogSeverity.INFO, ephemeral=True)

    def say(self, urn: str, line: str) -> None:
        """A line that stays in the output."""
        self._send(urn, line, stubs.engine.LogSeverity.INFO)

    def warn(self, urn: str, line: str) -> None:
        """A warning that stays in the output."""
        self._send(urn, line, stubs.engine.LogSeverity.WARNING)

    def _send(self, urn: str, line: str, severity: stubs.engine.LogSeverity.ValueType, ephemeral: bool = False) -> None:
        if self._stub is None:
            self._fallback(urn, line)
            return
        request = stubs.engine.LogRequest(severity=severity, message=line, urn=urn, ephemeral=ephemeral)
        try:
            self._stub.Log(request, timeout=LOG_SECONDS)
        except grpc.RpcError as error:
            # A lost line must not fail an act on a machine; a lost engine ends us through the guardian.
            _log.warning("the engine did not take a line (%s): %s", error, line)
