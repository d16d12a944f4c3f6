"""What can be said of a pool before anything is touched: refusals, and admissions that are half done. Contacts nothing.

Light on purpose: every preview asks both, and must not pay for Ansible or a Kubernetes client.
"""

from __future__ import annotations

import contextlib

from bringup import admission, assignments, consent
from bringup.words import Words
from inventory.model import Fleet, NodeState, Pool
from lockstep.base import errors, journal
from lockstep.base.names import NodeName
from lockstep.base.settings import Settings
from pinsets import load
from pinsets.facts import Snapshot
from pinsets.findings import Comparison

__all__ = ["check_journal", "preflight", "unfinished"]


def preflight(fleet: Fleet, pool: Pool, settings: Settings, words: Words) -> None:
    """Raise what `bring_into_step` would refuse before it touches anything; contacts nothing, writes nothing.

    `errors.RefusedError` for a shrunk pool, a bumped generation, `plan: required`, a
    window other than `always`, stored facts in place of live ones; `errors.InputError` for a missing or stale lock.
    """
    load.lock(pool.pinset, pool.os)
    consent.check_policy(pool, words)
    book = journal.open_if_there(settings, fleet.name)
    if book is not None:
        with book:
            check_journal(pool, words, book)


def unfinished(
    fleet: Fleet, pool: Pool, snapshot: Snapshot, comparison: Comparison, settings: Settings
) -> dict[NodeName, str]:
    """In-step nodes whose admission is still to be finished, and why. Contacts nothing.

    What only the cluster knows is left out. Nothing for spares, nodes held or in
    repair, adopted ones, and nodes that the comparison finds out of step anyway.
    """
    lock = load.lock(pool.pinset, pool.os)
    book = journal.open_if_there(settings, fleet.name)
    with contextlib.ExitStack() as stack:
        if book is not None:
            stack.enter_context(book)
        newest = book.assignments() if book is not None else {}
        interrupted = book.runs.interrupted(also_failed=admission.RETRIED) if book is not None else {}
        fences = book.fences() if book is not None else {}
    found: dict[NodeName, str] = {}
    for node in pool.nodes:
        facts, verdict = snapshot.nodes.get(node.name), comparison.nodes.get(node.name)
        if node.spare or facts is None or verdict is None or not verdict.verdict.in_step:
            continue
        if verdict.lock != lock.full:
            continue
        assigned = assignments.of_machine(facts, newest.get(node.name))
        why = admission.unfinished(
            node,
            facts,
            lock,
            assigned=assigned,
            interrupted=interrupted.get(node.name),
            fence=fences.get(node.name),
            cluster=False,
            view=None,
        )
        if why is None and node.state is NodeState.NEW and facts.admission is None:
            why = "not admitted"
        if why is not None:
            found[node.name] = why
    return found


def check_journal(pool: Pool, words: Words, book: journal.Journal) -> None:
    """The refusals that need the journal: stored facts, a shrunk pool, a bumped generation."""
    if words.facts is not None:
        raise errors.RefusedError(
            f"machines are changed only by facts read now, not by `{words.facts}`",
            place=f"pool {pool.name}",
            hint="leave --facts (LOCKSTEP_FACTS) out; a preview may use it",
        )
    consent.check_shrink(pool.name, book.pool_nodes(pool.name), [node.name for node in pool.nodes], words)
    consent.check_generations(pool.nodes, book.generations())
