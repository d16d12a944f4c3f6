"""Emptying nodes by waiting: own taint and cordon, until no pod and no process on a GPU is left. Never by eviction."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from bringup import reading
from bringup.cluster import Cluster
from inventory.model import Fleet, Pool
from lockstep.base import errors, journal, limits
from lockstep.base.names import NodeName
from pinsets.facts import NodeFacts

__all__ = ["release", "vacate"]


def vacate(
    fleet: Fleet,
    pool: Pool,
    nodes: Collection[NodeName],
    book: journal.Journal,
    cluster: Cluster | None,
    *,
    say: Callable[[NodeName, str], None],
) -> dict[NodeName, str]:
    """Wait up to the pool's `disruption.wait` for ``nodes`` to become vacant; node → why it did not.

    Those get our taint and cordon lifted again: they are as they were.
    """
    before = book.fences()
    failed = {node: why for node in sorted(nodes) if (why := _cordon(fleet, pool, node, book, cluster)) is not None}
    failed |= _wait(fleet, pool, sorted(set(nodes) - failed.keys()), book, cluster, say)
    for node in failed:
        if (why := release(fleet, node, book, cluster)) is not None:
            failed[node] += f"; and our cordon could not be lifted: {why}"
        elif (old := before.get(node)) is not None and old.kind is journal.FenceKind.FENCED:
            book.fence(node, old.kind, old.reason)
    return failed


def _cordon(fleet: Fleet, pool: Pool, node: NodeName, book: journal.Journal, cluster: Cluster | None) -> str | None:
    """Our taint and cordon; why they could not be set, None when they are."""
    # The journal first: a cordon that a killed run set is found and lifted by it.
    book.fence(node, journal.FenceKind.VACATING, "vacated before a disruption")
    if cluster is None or _is_spare(fleet, node):
        return None
    try:
        # Without a Node nothing can be scheduled there, so there is nothing to cordon.
        if cluster.node(node) is not None:
            cluster.vacate(node, "vacated before a disruption", f"lockstep {pool.name}")
    except errors.LockstepError as error:
        return error.diagnostics()
    return None


def _wait(
    fleet: Fleet,
    pool: Pool,
    nodes: list[NodeName],
    book: journal.Journal,
    cluster: Cluster | None,
    say: Callable[[NodeName, str], None],
) -> dict[NodeName, str]:
    """Wait for all of them; those that are not vacant at the limit, and who is there."""
    waiting = list(nodes)
    deadline = time.monotonic() + pool.disruption.wait
    while waiting:
        snapshot = reading.read_nodes(fleet, waiting, journal=book)
        held = {node: _occupant(fleet, node, snapshot.nodes.get(node), cluster) for node in waiting}
        waiting = [node for node in waiting if held[node] is not None]
        if time.monotonic() >= deadline:
            return {node: f"not vacant after {pool.disruption.wait} s: {held[node]}" for node in waiting}
        for node in waiting:
            say(node, f"waits to become vacant: {held[node]}")
        if waiting:
            time.sleep(min(limits.VACATE_POLL_SECONDS, max(deadline - time.monotonic(), 0.1)))
    return {}


def release(fleet: Fleet, node: NodeName, book: journal.Journal, cluster: Cluster | None) -> str | None:
    """Lift what `vacate` set; why it could not be, None when it was. The journal forgets it only then."""
    if cluster is not None and not _is_spare(fleet, node):
        try:
            if cluster.node(node) is not None:
                cluster.release(node)
        except errors.LockstepError as error:
            return error.diagnostics()
    book.unfence(node)
    return None


def _occupant(fleet: Fleet, node: NodeName, facts: NodeFacts | None, cluster: Cluster | None) -> str | None:
    """Who is on the node; None when it is vacant. What cannot be read counts as somebody."""
    if facts is None or facts.unreachable is not None:
        return f"it cannot be read ({facts.unreachable if facts is not None else 'no answer'})"
    if facts.busy is None:
        return "whether a process holds a GPU is not known"
    if facts.busy:
        return f"a process holds a GPU: {facts.busy[0]}"
    if cluster is None or _is_spare(fleet, node):
        return None
    try:
        pods = cluster.pods_on(node)
    except errors.LockstepError as error:
        return error.message
    return f"pod {pods[0]}" + (f" and {len(pods) - 1} more" if len(pods) > 1 else "") if pods else None


def _is_spare(fleet: Fleet, node: NodeName) -> bool:
    found = fleet.node(node)
    return found is not None and found.spare
