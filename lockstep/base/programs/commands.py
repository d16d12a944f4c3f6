"""Run a long command and hear every line of it, and a beat each second in between."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["run"]

BEAT_SECONDS = 1.0
"""How often a display may move while the command is silent (a link step takes a minute)."""
CLOSING_SECONDS = 5.0
"""Between asking and forcing a command that we leave early."""


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    line: Callable[[str], None],
    beat: Callable[[], None] = lambda: None,
) -> int:
    """Exit status of ``command``; ``line`` gets each line of its output and errors without the newline.

    The command gets a session of its own, which ends with this call whatever happens.
    """
    process = subprocess.Popen(
        list(command),
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None  # noqa: S101 - asked for above
    rest = b""
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(BEAT_SECONDS):
                    beat()
                    continue
                chunk = os.read(process.stdout.fileno(), 65_536)
                if not chunk:
                    break
                *whole, rest = (rest + chunk).split(b"\n")
                for text in whole:
                    line(text.decode(errors="replace"))
        if rest:
            line(rest.decode(errors="replace"))
        return process.wait()
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CLOSING_SECONDS)
            return
