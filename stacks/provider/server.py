"""The engine's protocol: one servicer over the wheel's stubs, for the one resource type that we have.

Everything slow runs in threads; the loop only takes calls. No method but Create and Update
without ``preview`` touches a machine.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import grpc
from google.protobuf import empty_pb2, struct_pb2

from inventory import model
from lockstep.base import errors, settings
from stacks import pools, results
from stacks.provider import acts, differences, fleets, guardian, narrator, structs, stubs, sweeps

__all__ = ["Provider", "Work"]

SHOWN = 3
"""Places of one node that a preview of a new pool spells out; a bare machine deviates in all."""
SHOWN_NODES = 20
"""Nodes that it spells out; `lockstep audit` shows every one."""

_CODES = {
    errors.ExitCode.BAD_INPUT: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ExitCode.REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ExitCode.NOT_MEASURED: grpc.StatusCode.UNAVAILABLE,
    errors.ExitCode.INTERRUPTED: grpc.StatusCode.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Work:
    """What the servicer hands on; tests give readings and acts of their own."""

    where: settings.Settings
    read: sweeps.Read
    act: acts.Act
    fleets: fleets.Fleets
    preflight: Callable[[model.Fleet, model.Pool], None]
    """Raises what refuses the whole run."""
    waiting: sweeps.Waiting

    @classmethod
    def real(cls) -> Work:
        """The work of the plugin's process."""
        where = settings.load()
        known = fleets.Fleets(where)
        read = sweeps.real(where)
        waiting = sweeps.real_waiting(where)
        act = acts.bring(read, waiting, where)
        return cls(where, read, act, known, lambda fleet, pool: acts.preflight(fleet, pool, where), waiting)


class Provider(stubs.provider_grpc.ResourceProviderServicer):
    """One per process. Message shapes: the wheel's `provider_pb2`."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._sweeps = sweeps.Sweeps(work.fleets, work.read, work.waiting)
        self._narrator = narrator.Narrator(None)
        self._cancelled = threading.Event()

    # What the engine asks once.

    async def Handshake(  # noqa: N802 - the protocol's names
        self, request: stubs.provider.ProviderHandshakeRequest, context: Any
    ) -> stubs.provider.ProviderHandshakeResponse:
        """Learn where the engine listens; say which forms of values we take."""
        self._narrator = narrator.Narrator(request.engine_address)
        return stubs.provider.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True, accept_outputs=True)

    async def GetPluginInfo(self, request: empty_pb2.Empty, context: Any) -> stubs.plugin.PluginInfo:  # noqa: N802
        """Our version."""
        return stubs.plugin.PluginInfo(version=pools.VERSION)

    async def GetSchema(  # noqa: N802
        self, request: stubs.provider.GetSchemaRequest, context: Any
    ) -> stubs.provider.GetSchemaResponse:
        """An empty schema: the program registers the one type by its token."""
        return stubs.provider.GetSchemaResponse(schema="{}")

    async def CheckConfig(  # noqa: N802
        self, request: stubs.provider.CheckRequest, context: Any
    ) -> stubs.provider.CheckResponse:
        """The provider has no configuration."""
        return stubs.provider.CheckResponse(inputs=request.news)

    async def DiffConfig(self, request: stubs.provider.DiffRequest, context: Any) -> stubs.provider.DiffResponse:  # noqa: N802
        """Never a change: nothing about the provider replaces a pool."""
        return stubs.provider.DiffResponse(changes=stubs.provider.DiffResponse.DIFF_NONE)

    async def Configure(  # noqa: N802
        self, request: stubs.provider.ConfigureRequest, context: Any
    ) -> stubs.provider.ConfigureResponse:
        """Announce previews and all forms of values."""
        return stubs.provider.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=True, acceptOutputs=True
        )

    async def Cancel(self, request: empty_pb2.Empty, context: Any) -> empty_pb2.Empty:  # noqa: N802
        """End what runs on machines. Acts in flight stop at their next line instead of beginning another wave."""
        self._cancelled.set()
        await asyncio.to_thread(guardian.end_acts)
        return empty_pb2.Empty()

    # What it asks of a pool.

    async def Check(self, request: stubs.provider.CheckRequest, context: Any) -> stubs.provider.CheckResponse:  # noqa: N802
        """Inputs as they are, and the reasons that forbid the whole run (shrink, plan, window, generation)."""
        try:
            await asyncio.to_thread(self._preflight, request.news)
        except errors.LockstepError as error:
            refused = results.PoolOutcome(
                structs.text(request.news, "pool"), error.exit_code, error=error.diagnostics()
            )
            results.append(refused, os.environ)
            failure = stubs.provider.CheckFailure(reason=error.diagnostics())
            return stubs.provider.CheckResponse(inputs=request.news, failures=[failure])
        return stubs.provider.CheckResponse(inputs=request.news)

    async def Diff(self, request: stubs.provider.DiffRequest, context: Any) -> stubs.provider.DiffResponse:  # noqa: N802
        """`differences.compare`; never a replacement."""
        return differences.compare(request.olds, request.old_inputs, request.news)

    async def Create(self, request: stubs.provider.CreateRequest, context: Any) -> stubs.provider.CreateResponse:  # noqa: N802
        """Bring the pool into step; safe to repeat, since what is in step is not touched.

        The engine reads nothing before it creates, so a preview reads here and says what it found.
        """
        if request.preview:
            await self._say_what_deviates(request.urn, request.properties)
        outputs, identity = await self._act(request.urn, request.properties, request.preview, context)
        return stubs.provider.CreateResponse(id=identity, properties=outputs, refresh_before_update=True)

    async def Update(self, request: stubs.provider.UpdateRequest, context: Any) -> stubs.provider.UpdateResponse:  # noqa: N802
        """The same act as Create, to what is declared now."""
        outputs, _ = await self._act(request.urn, request.news, request.preview, context)
        return stubs.provider.UpdateResponse(properties=outputs, refresh_before_update=True)

    async def Read(self, request: stubs.provider.ReadRequest, context: Any) -> stubs.provider.ReadResponse:  # noqa: N802
        """Live facts of the pool, from the process's one sweep; also for `pulumi import` by ``FLEET/POOL``."""
        inputs = request.inputs if request.inputs.fields else await self._imported(request.id, context)
        reference, pool = structs.text(inputs, "fleet"), structs.text(inputs, "pool")
        skew = await self._sweeps.skew(reference, pool, lambda line: self._narrator.status(request.urn, line))
        return stubs.provider.ReadResponse(
            id=request.id, inputs=inputs, properties=_outputs(inputs, skew), refresh_before_update=True
        )

    async def Delete(self, request: stubs.provider.DeleteRequest, context: Any) -> empty_pb2.Empty:  # noqa: N802
        """Forget the pool. No machine, Node or taint is touched, and nothing is read."""
        return empty_pb2.Empty()

    # How.

    def _preflight(self, inputs: struct_pb2.Struct) -> None:
        fleet = self._work.fleets.get(structs.text(inputs, "fleet"))
        self._work.preflight(fleet, fleets.pool(fleet, structs.text(inputs, "pool")))

    async def _act(
        self, urn: str, inputs: struct_pb2.Struct, preview: bool, context: Any
    ) -> tuple[struct_pb2.Struct, str]:
        """Outputs and id after an act; what they are meant to be after it in a preview."""
        try:
            fleet = await asyncio.to_thread(self._work.fleets.get, structs.text(inputs, "fleet"))
            pool = fleets.pool(fleet, structs.text(inputs, "pool"))
            identity = pools.identity(fleet, pool)
            if preview:
                return _outputs(inputs, {}), identity
            self._sweeps.forget()
            voice = acts.Voice(
                lambda line: self._heard(self._narrator.status, urn, line),
                lambda line: self._heard(self._narrator.say, urn, line),
            )
            kubeconfig = structs.text(inputs, "kubeconfig")
            acted = await asyncio.to_thread(
                self._work.act, fleet, pool, Path(kubeconfig) if kubeconfig else None, voice
            )
        except errors.LockstepError as error:
            await _abort(context, error)
        for line in acted.warnings:
            await asyncio.to_thread(self._narrator.warn, urn, line)
        outputs = _outputs(inputs, acted.skew)
        if acted.failures:
            details = structs.init_failure(identity, outputs, inputs, acted.failures)
            await context.abort(grpc.StatusCode.UNKNOWN, "; ".join(acted.failures), ((structs.INIT_FAILED, details),))
        return outputs, identity

    async def _say_what_deviates(self, urn: str, inputs: struct_pb2.Struct) -> None:
        """One line per node out of step, in the engine's own display."""
        reference, pool = structs.text(inputs, "fleet"), structs.text(inputs, "pool")
        skew = await self._sweeps.skew(reference, pool, lambda line: self._narrator.status(urn, line))
        for node, entries in list(skew.items())[:SHOWN_NODES]:
            shown = "; ".join(f"{place}: {text}" for place, text in list(entries.items())[:SHOWN])
            more = f"; and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
            await asyncio.to_thread(self._narrator.say, urn, f"{node}: {shown}{more}")
        if len(skew) > SHOWN_NODES:
            await asyncio.to_thread(self._narrator.say, urn, f"and {len(skew) - SHOWN_NODES} more nodes out of step")

    def _heard(self, tell: Callable[[str, str], None], urn: str, line: str) -> None:
        """Pass a line of an act on, or end the act when the engine has cancelled."""
        if self._cancelled.is_set():
            raise errors.InterruptedRunError("cancelled by the engine", hint="the same command goes on from here")
        tell(urn, line)

    async def _imported(self, identity: str, context: Any) -> struct_pb2.Struct:
        parts = pools.split_identity(identity)
        try:
            if parts is None:
                raise errors.InputError(f"{identity!r} is not the id of a pool", hint="write FLEET/POOL")
            return structs.struct(await asyncio.to_thread(self._inputs, *parts))
        except errors.LockstepError as error:
            await _abort(context, error)

    def _inputs(self, reference: str, name: str) -> dict[str, object]:
        from pinsets import load

        fleet = self._work.fleets.get(reference)
        pool = fleets.pool(fleet, name)
        return pools.inputs(fleet, pool, load.fleet_locks(fleet)[pool.name], self._work.where.checkout)


def _outputs(inputs: struct_pb2.Struct, skew: pools.Skew) -> struct_pb2.Struct:
    """What the state keeps: the lock and what deviates. The nodes stand in the inputs already."""
    return structs.struct({"lock": structs.text(inputs, "lock"), "skew": skew})


async def _abort(context: Any, error: errors.LockstepError) -> NoReturn:
    await context.abort(_CODES.get(error.exit_code, grpc.StatusCode.INTERNAL), error.diagnostics())
    raise AssertionError("abort does not return")
