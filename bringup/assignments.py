"""Which lock each node is compared with: the one the journal assigned, and during a roll-out the one before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pinsets
from inventory.model import Node, Pool, Source
from lockstep.base import journal
from lockstep.base.names import NodeName
from pinsets import load
from pinsets.compare import Expectation
from pinsets.facts import NodeFacts, Snapshot
from pinsets.model import Lock

__all__ = ["Locks", "expectations", "of_machine"]


class Locks:
    """Locks by full digest: from the journal, which keeps every lock it assigned, else from the committed files."""

    def __init__(self, book: journal.Journal | None, pool_lock: Lock) -> None:
        self._book = book
        self._found: dict[str, Lock | None] = {pool_lock.full: pool_lock}

    def get(self, full: str) -> Lock | None:
        """The lock; None when nobody here holds its content."""
        if full not in self._found:
            self._found[full] = self._look_up(full)
        return self._found[full]

    def _look_up(self, full: str) -> Lock | None:
        text = self._book.lock_text(full) if self._book is not None else None
        if text is not None:
            return load.lock_text(text, f"lock {full[:16]} of the journal")
        for path in sorted((Path(pinsets.__file__).parent / "locks").glob("*.json")):
            content = path.read_text(encoding="utf-8")
            if full in content and (lock := load.lock_text(content, str(path))).full == full:
                return lock
        return None


def of_machine(facts: NodeFacts | None, newest: journal.Assignment | None) -> journal.Assignment | None:
    """The node's assignment if it is this very machine's; None when another serial stands there now.

    A serial that could not be read proves no change: the newest one holds.
    """
    if newest is None or facts is None or facts.serial is None or not newest.serial:
        return newest
    return newest if newest.serial == facts.serial else None


def expectations(
    pool: Pool,
    snapshot: Snapshot,
    pool_lock: Lock,
    book: journal.Journal | None,
    *,
    verify: bool = False,
    without: Collection[Source] = (),
) -> list[Expectation]:
    """What each node of the pool should be. ``without``: sources of the pool that this reading leaves out.

    Held to the pool's lock: that, and while its roll-out runs the one before. Held to
    an earlier lock, since its wave has not begun: the pool's, with the earlier one as
    `previous`, so that compare says pending-rollout. Unknown: the lock that its
    admission file names counts as the earlier one. ``verify`` leaves `previous` out.
    """
    newest = book.assignments() if book is not None else {}
    locks = Locks(book, pool_lock)
    waived = load.pinset(pool.pinset).rules
    return [
        Expectation(
            node,
            pool.sku,
            pool_lock,
            None if verify else _previous(node, snapshot.nodes.get(node.name), newest, locks, pool_lock),
            waived,
            tuple(source.value for source in pool.sources if source not in without),
        )
        for node in pool.nodes
    ]


def _previous(
    node: Node,
    facts: NodeFacts | None,
    newest: Mapping[str, journal.Assignment],
    locks: Locks,
    pool_lock: Lock,
) -> Lock | None:
    assigned = of_machine(facts, newest.get(NodeName(node.name)))
    if assigned is not None:
        before = assigned.previous if assigned.lock == pool_lock.full else assigned.lock
        return locks.get(before) if before is not None else None
    named = (facts.admission or {}).get("lock") if facts is not None else None
    if isinstance(named, str) and named != pool_lock.full:
        return locks.get(named)
    return None
