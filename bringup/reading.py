"""One reading of a fleet: sweep or stored snapshot, compared with the assigned locks. Shared by audit, up and replace.

Importing it is cheap; paramiko and the journal's database come in when a reading needs them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bringup import baselines, further, stored, sweep
from bringup import targets as target_builder
from bringup.baselines import Baseline
from bringup.shards import Shard
from bringup.sources import reading as sources
from bringup.sweep import Progress
from bringup.transport.base import Failure, Patience, Target, Transport
from inventory.model import Fleet, Pool
from lockstep.base import errors
from lockstep.base.names import NodeName, PoolName
from lockstep.base.settings import Settings
from pinsets import causes, compare, components, load
from pinsets.facts import Snapshot
from pinsets.findings import Comparison
from pinsets.model import Lock

if TYPE_CHECKING:
    from lockstep.base.journal import Journal

__all__ = [
    "Progress",
    "Reading",
    "compared",
    "read_fleet",
    "read_hosts",
    "read_nodes",
    "recompared",
    "select",
    "targets",
]

LIVE = "ssh"
FACTS_VARIABLE = "LOCKSTEP_FACTS"
HEAVY = frozenset({"settings.acs", "settings.cc", "settings.nic"})
"""Components that only the heavy vendor tools tell: where a pool pins one, they are asked without being told to."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reading gave."""

    snapshot: Snapshot
    comparisons: Mapping[PoolName, Comparison]
    """Per pool, in file order; restricted to the nodes asked for."""
    locks: Mapping[PoolName, Lock]
    live: bool
    """False: taken from a stored snapshot."""
    source: str
    """For people: ``read now by SSH``, ``snapshot NAME, 12 min old``."""
    failures: Mapping[NodeName, Failure] = field(default_factory=dict)
    """Nodes that gave no answer: class, reason and remedy. Empty for a stored snapshot."""
    second_pass: tuple[NodeName, ...] = ()
    """Nodes that answered only when tried again."""
    interrupted: bool = False
    path: Path | None = None
    """File that the snapshot was read from or written to."""


def read_fleet(
    fleet: Fleet,
    settings: Settings,
    *,
    pools: Collection[str] | None = None,
    nodes: Collection[str] | None = None,
    facts: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    journal: Journal | None = None,
    patience: Patience | None = None,
    transport: Transport | None = None,
    store: bool = True,
    deep: bool = False,
    shard: Shard | None = None,
) -> Reading:
    """Read ``fleet`` (or some pools or nodes of it) and compare every pool with its assigned locks.

    ``facts``: ``ssh`` reads now, ``redfish`` and ``kubernetes`` too, without a login on the nodes; ``snapshot`` takes
    the newest stored one; a path names a stored file or a folder of probe outputs; None: what LOCKSTEP_FACTS says, else
    SSH, joined with every further source that the pool names (`pinsets.sources`). ``journal`` None: the state folder's,
    if there is one. ``store`` keeps the snapshot in the state folder; ``shard`` takes a part of the domains; ``deep``
    also runs the heavy vendor tools, which is done without it where a pool pins what they alone tell.

    Raises `errors.InputError` for unknown names, missing or stale locks and unreadable identities, before any node is
    contacted; `errors.NotMeasuredError` without a snapshot.
    """
    chosen = select(fleet, pools, nodes, shard)
    locks = _locks(fleet, [pool for pool, _ in chosen])
    wanted = facts or os.environ.get(FACTS_VARIABLE) or LIVE
    with _book(journal, fleet, settings) as book:
        if wanted in sources.WORDS:
            members = [name for _, mine in chosen for name in mine]
            by_pool = {str(name): lock for name, lock in locks.items()}
            snapshot = sources.of_fleet(wanted, fleet, members, by_pool, settings)
            told = _compare(chosen, locks, snapshot, book)
            return Reading(snapshot, told, locks, True, f"read now by {wanted}")
        if wanted != LIVE:
            skus = {node.name: pool.sku for pool in fleet.pools for node in pool.nodes}
            snapshot, path = stored.load(wanted, settings, fleet.name, components.load(), skus)
            source = f"{path.name}, {_age(snapshot)} old"
            return Reading(snapshot, _compare(chosen, locks, snapshot, book), locks, False, source, path=path)
        names = [name for _, members in chosen for name in members]
        swept = _sweep(fleet, names, book, progress, patience, transport, deep=deep)
        explicit = facts is not None or FACTS_VARIABLE in os.environ
        snapshot, also = (swept.snapshot, ()) if explicit else further.joined(fleet, swept.snapshot, settings)
        kept, lost = _store(snapshot, fleet, settings, whole=not swept.interrupted) if store else (None, "")
        return Reading(
            snapshot=snapshot,
            comparisons=_compare(chosen, locks, snapshot, book),
            locks=locks,
            live=True,
            source=f"read now by {' and '.join(('SSH', *also))}{lost}",
            failures=swept.failures,
            second_pass=swept.second_pass,
            interrupted=swept.interrupted,
            path=kept,
        )


def read_nodes(
    fleet: Fleet,
    nodes: Collection[str],
    *,
    journal: Journal | None = None,
    progress: Callable[[Progress], None] | None = None,
    patience: Patience | None = None,
    transport: Transport | None = None,
) -> Snapshot:
    """Facts of these nodes, read now: for verifying an act. Nothing is compared and nothing stored.

    Raises `KeyboardInterrupt` when it was interrupted: half a proof is none.
    """
    chosen = select(fleet, None, nodes)
    names = [name for _, members in chosen for name in members]
    swept = _sweep(fleet, names, journal, progress, patience, transport)
    if swept.interrupted:
        raise KeyboardInterrupt
    # What the cluster says of a node is no proof of an act on it; what its BMC says of its firmware is.
    return further.with_bmcs(fleet, swept.snapshot)


def read_hosts(
    names: Sequence[str] | Mapping[NodeName, Target],
    *,
    like: str | None = None,
    baseline: Baseline | None = None,
    progress: Callable[[Progress], None] | None = None,
    patience: Patience | None = None,
    transport: Transport | None = None,
    deep: bool = False,
) -> Reading:
    """Hosts without a fleet file, compared with ``baseline``: by default their majority. Writes nothing anywhere.

    ``names``: reached by ``~/.ssh/config``, or as the targets say. Raises `errors.InputError` when the host to compare
    with (``like`` is short for it) is not among them or gave no answer.
    """
    ways = names if isinstance(names, Mapping) else target_builder.for_hosts(names)
    against = baseline or Baseline(NodeName(like) if like else None)
    if against.like is not None and against.like not in ways:
        raise errors.InputError(f"--like {against.like} is not among the hosts")
    if not ways:
        raise errors.NotMeasuredError("no host was selected")
    swept = sweep.read(
        [sweep.Request(target, against.sku) for target in ways.values()],
        transport or _ssh(),
        components.load(),
        progress=progress,
        patience=patience or Patience(),
        deep=deep,
    )
    return dataclasses.replace(
        compared(swept.snapshot, against, "read now by SSH"),
        live=True,
        failures=swept.failures,
        second_pass=swept.second_pass,
        interrupted=swept.interrupted,
    )


def compared(snapshot: Snapshot, baseline: Baseline, source: str) -> Reading:
    """Facts of hosts without a fleet file that were gathered otherwise, compared with ``baseline``."""
    return Reading(snapshot, {baselines.POOL: baseline.compare(snapshot)}, {}, False, source)


def recompared(fleet: Fleet, settings: Settings, snapshot: Snapshot, source: str) -> Reading:
    """A snapshot that is at hand, compared with the fleet's locks; nothing is read or stored."""
    chosen = select(fleet, None, None)
    locks = _locks(fleet, [pool for pool, _ in chosen])
    with _book(None, fleet, settings) as book:
        return Reading(snapshot, _compare(chosen, locks, snapshot, book), locks, False, source)


def targets(fleet: Fleet, journal: Journal | None = None) -> dict[NodeName, Target]:
    """How every node of the fleet is reached; host keys from the journal, else from the fleet's known_hosts."""
    from bringup import hostkeys

    return target_builder.for_fleet(fleet, hostkeys.of(fleet, journal))


def select(
    fleet: Fleet, pools: Collection[str] | None, nodes: Collection[str] | None, shard: Shard | None = None
) -> list[tuple[Pool, tuple[NodeName, ...]]]:
    """Pools and the names asked for in each. Raises `errors.InputError` naming every unknown pool or node."""
    problems = []
    for word, given, known in (
        ("pool", pools, [str(pool.name) for pool in fleet.pools]),
        ("node", nodes, [str(node.name) for node in fleet.nodes]),
    ):
        for name in given or ():
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f" (did you mean `{close[0]}`?)" if close else ""
                problems.append(f"fleet {fleet.name} has no {word} `{name}`{hint}")
    if problems:
        raise errors.InputError("; ".join(problems))
    chosen = []
    mine = frozenset(shard.of_fleet(fleet, (node.name for node in fleet.nodes))) if shard is not None else None
    for pool in fleet.pools:
        if pools and pool.name not in pools:
            continue
        members = tuple(
            node.name
            for node in pool.nodes
            if (not nodes or node.name in nodes) and (mine is None or node.name in mine)
        )
        if members:
            chosen.append((pool, members))
    if not chosen:
        raise errors.NotMeasuredError(f"no node of fleet {fleet.name} is in that selection")
    return chosen


def _locks(fleet: Fleet, pools: Sequence[Pool]) -> dict[PoolName, Lock]:
    """Locks of all pools are checked, also of those that are not read: a stale file is wrong today."""
    found = load.fleet_locks(fleet)
    return {pool.name: found[pool.name] for pool in pools}


@contextlib.contextmanager
def _book(given: Journal | None, fleet: Fleet, settings: Settings) -> Iterator[Journal | None]:
    """The journal given, else the state folder's when there is one; nothing is created for a reading."""
    if given is not None:
        yield given
        return
    from lockstep.base import journal

    found = journal.open_if_there(settings, fleet.name)
    with found if found is not None else contextlib.nullcontext():
        yield found


def _sweep(
    fleet: Fleet,
    names: Sequence[NodeName],
    book: Journal | None,
    progress: Callable[[Progress], None] | None,
    patience: Patience | None,
    transport: Transport | None,
    *,
    deep: bool = False,
) -> sweep.Swept:
    ways = targets(fleet, book)
    skus = {node.name: pool.sku for pool in fleet.pools for node in pool.nodes}
    requests = [sweep.Request(ways[name], skus[name]) for name in names]
    return sweep.read(
        requests,
        transport or _ssh(),
        components.load(),
        progress=progress,
        patience=patience,
        deep=deep or _pins_heavy(fleet, frozenset(names)),
    )


def _pins_heavy(fleet: Fleet, names: frozenset[NodeName]) -> bool:
    mine = [pool for pool in fleet.pools if any(node.name in names for node in pool.nodes)]
    return any(not HEAVY.isdisjoint(load.pinset(pool.pinset).pins) for pool in mine)


def _ssh() -> Transport:
    from bringup.transport import ssh

    return ssh.Ssh()


def _compare(
    chosen: Sequence[tuple[Pool, tuple[NodeName, ...]]],
    locks: Mapping[PoolName, Lock],
    snapshot: Snapshot,
    book: Journal | None,
) -> dict[PoolName, Comparison]:
    from bringup import assignments

    found = {}
    for pool, members in chosen:
        wanted = frozenset(members)
        expected = [
            one for one in assignments.expectations(pool, snapshot, locks[pool.name], book) if one.node.name in wanted
        ]
        before = book.findings_seen(pool.name) if book is not None else None
        found[pool.name] = causes.common_cause(compare.compare(expected, snapshot), before, expected, snapshot)
    return found


def _store(snapshot: Snapshot, fleet: Fleet, settings: Settings, *, whole: bool) -> tuple[Path | None, str]:
    """Keep it; a reading of some nodes goes over the last one of all. What was read is worth more than a copy of it:
    where none can be kept that is only told."""
    members = frozenset(node.name for node in fleet.nodes)
    if not whole or not members <= snapshot.nodes.keys():
        newest = stored.latest(settings, fleet.name)
        snapshot = stored.merge(_earlier(newest), snapshot, members)
    try:
        return stored.save(snapshot, settings, fleet.name), ""
    except OSError as error:
        return None, f", not stored: {error.filename}: {error.strerror}"
    except errors.EngineError as error:
        return None, f", not stored: {error}"


def _earlier(path: Path | None) -> Snapshot | None:
    from pinsets import snapshots

    try:
        return snapshots.read(path) if path is not None else None
    except (OSError, ValueError, EOFError, errors.InputError):
        # A damaged old file must not spoil a new reading; what it held is read anew sooner or later.
        return None


def _age(snapshot: Snapshot) -> str:
    seconds = max(0, round(time.time() - snapshot.taken_at))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
