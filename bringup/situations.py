"""Reading a pool and everything that decides about it: facts, comparison, cluster, journal → one situation per node."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bringup import admission, assignments, cluster, consent, planning
from bringup.cluster_views import NodeView
from bringup.consent import Registration
from bringup.stages import Stage
from bringup.words import Words
from inventory.model import Node, Pool, Source
from lockstep.base import journal
from lockstep.base.names import NodeName
from pinsets import causes, compare
from pinsets.facts import NodeFacts, Snapshot
from pinsets.findings import Comparison, NodeVerdict, Verdict
from pinsets.model import Lock

__all__ = ["Picture", "compare_pool", "picture"]


@dataclass(frozen=True, slots=True)
class Picture:
    """One pool at one moment."""

    snapshot: Snapshot
    comparison: Comparison
    """With common causes."""
    situations: Mapping[NodeName, planning.Situation]
    views: Mapping[NodeName, NodeView] | None
    """Nodes of the cluster; None when no cluster is used."""
    withheld: frozenset[NodeName]


def compare_pool(
    pool: Pool, snapshot: Snapshot, lock: Lock, book: journal.Journal | None, *, verify: bool = False
) -> Comparison:
    """Compare a pool with what it is held to; common causes are found against the journal's last reading."""
    # What the cluster says of a node proves no act on it, and is not read here.
    cluster = (Source.KUBERNETES, Source.PROMETHEUS)
    expected = assignments.expectations(pool, snapshot, lock, book, verify=verify, without=cluster)
    found = compare.compare(expected, snapshot)
    if verify:
        return found
    before = book.findings_seen(pool.name) if book is not None else None
    return causes.common_cause(found, before, expected, snapshot)


def picture(
    pool: Pool,
    snapshot: Snapshot,
    lock: Lock,
    book: journal.Journal,
    words: Words,
    views: Mapping[NodeName, NodeView] | None,
    *,
    only: Collection[NodeName] | None = None,
) -> Picture:
    """Situations of the pool's nodes; of ``only`` when given."""
    comparison = compare_pool(pool, snapshot, lock, book)
    withheld = causes.withheld(comparison, words.accept)
    unaccepted = [finding for finding in comparison.common_causes if finding.id not in words.accept]
    shared = _Shared(pool, lock, book, words, views)
    situations: dict[NodeName, planning.Situation] = {}
    for node in pool.nodes:
        if only is not None and node.name not in only:
            continue
        why = tuple(
            f"{finding.id} on {len(finding.nodes)} nodes: {finding.remedy}"
            for finding in unaccepted
            if node.name in finding.nodes
        )
        verdict = comparison.nodes.get(node.name) or comparison.apart.get(node.name)
        situations[node.name] = shared.situation(node, snapshot.nodes.get(node.name), verdict, why)
    return Picture(snapshot, comparison, situations, views, withheld)


class _Shared:
    """What is looked up once for all nodes of a pool."""

    def __init__(
        self,
        pool: Pool,
        lock: Lock,
        book: journal.Journal,
        words: Words,
        views: Mapping[NodeName, NodeView] | None,
    ) -> None:
        self._pool, self._lock, self._words, self._views = pool, lock, words, views
        self._assigned = book.assignments()
        self._admitted = book.admissions()
        self._interrupted = book.runs.interrupted(also_failed=admission.RETRIED)
        self._fences = book.fences()
        self._replacing = book.runs.open_replacements()
        self._staged = book.runs.done(Stage.VERIFY)
        self._locks = assignments.Locks(book, lock)

    def situation(
        self, node: Node, facts: NodeFacts | None, verdict: NodeVerdict | None, withheld: tuple[str, ...]
    ) -> planning.Situation:
        assigned = assignments.of_machine(facts, self._assigned.get(node.name))
        before = self._admitted.get(node.name)
        serial = facts.serial if facts is not None else None
        judged = consent.standing(
            node,
            facts,
            self._registration(node),
            admitted_before=before is not None and (serial is None or before.serial == serial),
            replacing=node.slot in self._replacing,
        )
        unfinished = None
        if facts is not None and facts.unreachable is None:
            unfinished = admission.unfinished(
                node,
                facts,
                self._lock,
                assigned=assigned,
                interrupted=self._interrupted.get(node.name),
                fence=self._fences.get(node.name),
                cluster=self._views is not None,
                view=(self._views or {}).get(node.name),
            )
        return planning.Situation(
            node,
            verdict or NodeVerdict(node.name, Verdict.UNREACHABLE),
            judged,
            self._lock,
            self._locks.get(verdict.lock) if verdict is not None and verdict.lock is not None else None,
            consent.allowed_kinds(self._pool, self._words, node.name),
            withheld,
            joins=self._views is not None and not node.spare,
            unfinished=unfinished,
            staged=(node.name, serial or "", self._lock.full) in self._staged,
            known=assigned is not None,
        )

    def _registration(self, node: Node) -> Registration:
        if self._views is None:
            return Registration.NO_CLUSTER
        view = self._views.get(node.name)
        if view is None:
            return Registration.NONE
        return Registration.UNVERIFIED if view.unverified else Registration.ADMITTED


def views_of(connected: cluster.Cluster | None) -> dict[NodeName, NodeView] | None:
    """All Nodes by name; None without a cluster. Raises as `cluster.Cluster.nodes`."""
    if connected is None:
        return None
    return {NodeName(view.name): view for view in connected.nodes()}
