"""What `lockstep audit` does with its words: read or take what others read, compare, say. No options here."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.base import errors

if TYPE_CHECKING:
    from bringup.audit import Audit
    from bringup.baselines import Baseline
    from bringup.sweep import Progress
    from bringup.transport.base import Patience, Transport
    from inventory.model import Fleet
    from lockstep.base.settings import Settings

__all__ = ["Words", "exit_code", "fence", "of_fleet", "of_hosts", "watch"]


@dataclasses.dataclass(frozen=True, slots=True)
class Words:
    """The options of one call that say what is read and with what it is compared."""

    fleet: str | None
    hosts: tuple[str, ...] = ()
    inventory: Path | None = None
    groups: tuple[str, ...] = ()
    folder: Path | None = None
    partition: str | None = None
    context: str | None = None
    prometheus: str | None = None
    like: str | None = None
    pinset: str | None = None
    sku: str | None = None
    pools: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    facts: str | None = None
    since: str | None = None
    baseline: Path | None = None
    shard: str | None = None
    timeout: float | None = None
    deep: bool = False
    transport: str = "paramiko"
    accept_new: bool = False

    def way(self) -> Transport:
        """How hosts are reached."""
        from bringup.transport import ways

        return ways.by_name(self.transport, accept_new=self.accept_new)

    def patience(self) -> Patience | None:
        """Time-outs of one host."""
        from bringup.transport import base

        return base.Patience.within(self.timeout) if self.timeout is not None else None


def of_fleet(words: Words, settings: Settings, advance: Callable[[Progress], None]) -> tuple[Audit, Fleet]:
    """Read a fleet and compare it with its locks; what is known is left out."""
    from bringup import audit, known, reading, shards
    from inventory import load
    from lockstep.base import hostranges
    from pinsets import checks

    assert words.fleet is not None  # noqa: S101 - the caller looked
    fleet = load.fleet(words.fleet, settings, more=checks.CHECKS)
    settings = settings.of_fleet(fleet.name)
    wanted = [name for pattern in words.nodes for name in hostranges.unfold(pattern, place="--node")]
    # Before the reading is stored: the newest one that is old enough must not be this one.
    since = known.moment(words.since, time.time()) if words.since is not None else None
    earlier = known.before(settings, fleet.name, since) if since is not None else None
    read = reading.read_fleet(
        fleet,
        settings,
        pools=words.pools or None,
        nodes=wanted or None,
        facts=words.facts,
        progress=advance,
        patience=words.patience(),
        transport=words.way(),
        # A fleet file somewhere on a disk is no reason to leave a folder beside the user's work.
        store=settings.checkout is not None or settings.state.is_dir(),
        deep=words.deep,
        shard=shards.parse(words.shard) if words.shard is not None else None,
    )
    if read.path is not None and read.path.is_dir():
        _strangers(fleet, read.snapshot.nodes, read.path)
    found = audit.of_fleet(fleet, read)
    if earlier is not None:
        before = reading.recompared(fleet, settings, earlier[0], earlier[1].name)
        found = known.without(found, known.of_comparisons(before.comparisons.values()), earlier[1].name)
    return _without_known(found, words), fleet


def _strangers(fleet: Fleet, names: Iterable[str], folder: Path) -> None:
    """Outputs of nodes that the fleet does not have are told: `gpu-7.jsonl` is not gpu-007's."""
    import typer

    from lockstep.base import hostranges

    known = {node.name for node in fleet.nodes}
    if strange := [name for name in names if name not in known]:
        typer.echo(f"{folder}: warning: fleet {fleet.name} has no node {hostranges.fold(strange)}", err=True)


def of_hosts(words: Words, advance: Callable[[Progress], None]) -> Audit:
    """Hosts without a fleet file: read now, or by others before; what is known is left out."""
    from bringup import audit, folders, hostlists, reading, shards
    from bringup.sources import reading as sources
    from bringup.sources import slurm
    from pinsets import components

    baseline = _baseline(words)
    if words.folder is not None:
        skus = None
        snapshot = folders.read(words.folder, components.load(), skus)
        if baseline.sku is not None:
            # Slots of GPUs come from the SKU, and the nodes are known only now.
            snapshot = folders.read(words.folder, components.load(), dict.fromkeys(snapshot.nodes, baseline.sku))
        return _without_known(audit.of_hosts(reading.compared(snapshot, baseline, f"outputs in {words.folder}")), words)
    if words.context is not None or words.prometheus is not None:
        if words.context is not None:
            snapshot = sources.of_context(words.context, baseline.sku, baseline.lock)
            told = f"read now from the cluster of {words.context}"
        else:
            snapshot = sources.of_prometheus(str(words.prometheus), baseline.sku, baseline.lock)
            told = f"read now from {words.prometheus}"
        return _without_known(audit.of_hosts(reading.compared(snapshot, baseline, told)), words)
    if words.partition is not None:
        ways = slurm.hosts(words.partition)
    elif words.inventory is not None:
        ways = hostlists.from_ansible(words.inventory, words.groups)
    else:
        ways = hostlists.from_ranges(words.hosts)
    if words.shard is not None:
        mine = set(shards.parse(words.shard).of_names(list(ways)))
        ways = {name: way for name, way in ways.items() if name in mine}
    read = reading.read_hosts(
        ways,
        baseline=baseline,
        progress=advance,
        patience=words.patience(),
        transport=words.way(),
        deep=words.deep,
    )
    return _without_known(audit.of_hosts(read), words)


def _baseline(words: Words) -> Baseline:
    from bringup import baselines
    from lockstep.base.names import NodeName

    if words.pinset is not None:
        return baselines.of_pinset(words.pinset, words.sku)
    return baselines.Baseline(NodeName(words.like) if words.like is not None else None)


def _without_known(found: Audit, words: Words) -> Audit:
    if words.baseline is None:
        return found
    from bringup import known

    return known.without(found, known.of_report(words.baseline), words.baseline.name)


def exit_code(found: Audit, *, strict: bool, fail_on: str, max_unreachable: str | None) -> errors.ExitCode:
    """The exit code of an audit with the words that shift it."""
    from bringup import audit
    from lockstep.base import quantities
    from pinsets import findings

    least = {"block": (), "warn": ("warn",), "info": ("warn", "info")}[fail_on]
    tolerated = 0
    if max_unreachable is not None:
        nodes = sum(len(pool.comparison.nodes) for pool in found.pools)
        try:
            tolerated = 0 if max_unreachable == "0" else quantities.parse_share(max_unreachable).nodes_of(nodes)
        except ValueError as error:
            raise errors.InputError(str(error), place="--max-unreachable") from error
    severities = frozenset(findings.Severity(word) for word in least)
    return audit.exit_code(found, strict=strict, fail_on=severities, tolerated=tolerated)


def fence(found: Audit, fleet: Fleet, settings: Settings, kubeconfig: Path | None, accept: list[str]) -> list[str]:
    """Keep new jobs off what deviates; what was done, as sentences."""
    import os

    from bringup import auditfence, joining

    settings = settings.of_fleet(fleet.name)
    cluster = joining.from_environment(settings, os.environ, kubeconfig)
    return auditfence.fence(fleet, found.reading, settings, cluster, accept)


def watch(seconds: float, once: Callable[[], object], say: Callable[[str], None]) -> None:
    """Call ``once`` every so many seconds until it is interrupted.

    The first call may fail as any call may; a later one that fails is told, and the next one is tried: a network that
    is away for a minute must not end a watch of weeks. What was written stays, and its own time says how old it is.
    """
    once()
    due = time.monotonic() + seconds
    while True:
        time.sleep(max(0.0, due - time.monotonic()))
        due = max(due + seconds, time.monotonic())
        try:
            once()
        except errors.LockstepError as error:
            say(error.diagnostics())
