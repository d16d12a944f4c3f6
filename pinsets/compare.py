"""Facts of a pool against its locks → findings and verdicts. Pure, and fast: equal fact sets are judged once.

Three levels: node to set (`pinsets.deviations`), node to node and instance to
instance (`pinsets.groups`). Without a fleet the baseline is one node or the
majority (`pinsets.majority`).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence

from lockstep.base import collection
from lockstep.base.names import DomainName, NodeName
from pinsets import (
    breaches,
    deviations,
    expected_instances,
    fabrics,
    factsets,
    groups,
    host_state,
    next_boot,
    offers,
    rules,
    siblings,
    sources,
    waivers,
)
from pinsets.deviations import Deviation
from pinsets.expectations import Expectation
from pinsets.facts import NodeFacts, Snapshot
from pinsets.findings import Comparison, Finding, NodeVerdict, Severity, Verdict, by_severity, worst
from pinsets.majority import compare_without_fleet
from pinsets.model import Lock

__all__ = ["Expectation", "compare", "compare_without_fleet", "findings_of"]


@collection.paused()
def compare(expectations: Sequence[Expectation], snapshot: Snapshot) -> Comparison:
    """The comparison of one pool. Nodes declared held or in repair come back in `apart`, and count nowhere else."""
    grouper = factsets.Grouper()
    judge = _Judge(grouper, datetime.datetime.fromtimestamp(snapshot.taken_at, datetime.UTC).date())
    facts = snapshot.nodes
    serving: dict[NodeName, Judged] = {}
    apart: dict[NodeName, Judged] = {}
    fabric = fabrics.judge([(one.node, one.sku, facts.get(one.node.name)) for one in expectations])
    for one in expectations:
        name = one.node.name
        judged = judge.node(one, facts.get(name))
        if more := (*_of_fabric(fabric.get(name, ()), judged[0]), *_of_disks(facts.get(name))):
            found, verdict, lock = judged
            judged = (*found, *more), worst([verdict, *(deviation.verdict for deviation in more)]), lock
        (apart if one.node.state.value in _OUT_OF_SERVICE else serving)[name] = judged
    nodes, shared = _results(serving)
    members = [one for one in expectations if one.node.name in nodes]
    group = groups.judge(members, snapshot, {name: judged[1:] for name, judged in serving.items()}, grouper)
    ruled = breaches.of_groups(judge.members(members, facts, serving), judge.ledger)
    of_group = [*group.findings, *ruled.findings]
    skewed = {**dict.fromkeys(group.skewed, Verdict.SKEWED), **ruled.skewed}
    _add(nodes, skewed, of_group)
    return Comparison(
        nodes=nodes,
        domains=_domains(members, nodes, group.skewed_domains | ruled.skewed_domains),
        findings=tuple(by_severity([*shared, *of_group])),
        apart=_results(apart)[0],
        common=group.common,
        baseline=_baseline(expectations),
        undecided=judge.ledger.entries(),
    )


def _add(nodes: dict[NodeName, NodeVerdict], skewed: Mapping[NodeName, Verdict], findings: Sequence[Finding]) -> None:
    """Findings about groups among those of the nodes that they hold back."""
    own: dict[NodeName, list[Finding]] = {}
    for finding in findings:
        for name in finding.nodes:
            if name in skewed:
                own.setdefault(name, []).append(finding)
    for name, verdict in skewed.items():
        old = nodes[name]
        nodes[name] = NodeVerdict(name, worst([old.verdict, verdict]), (*old.findings, *own.get(name, ())), old.lock)


_OF_FABRICS = frozenset({"driver", "fabricmanager", "nvlsm", "imex"})


def _of_fabric(found: tuple[Deviation, ...], own: Sequence[Deviation]) -> tuple[Deviation, ...]:
    """Where what brings a fabric up deviates itself, that is the finding, and mending it the remedy."""
    explained = any(
        one.verdict is not Verdict.ADMIT and one.coordinate is not None and one.coordinate.component in _OF_FABRICS
        for one in own
    )
    return tuple(one for one in found if one.id != "fabric.state" or not explained)


def _of_disks(facts: NodeFacts | None) -> tuple[Deviation, ...]:
    return host_state.disks(facts.attributes) if facts is not None else ()


def _results(judged: Mapping[NodeName, Judged]) -> tuple[dict[NodeName, NodeVerdict], list[Finding]]:
    """(node → verdict with its findings, all findings)."""
    shared = findings_of({name: found for name, (found, _, _) in judged.items()})
    of_tuple: dict[int, tuple[Finding, ...]] = {}
    nodes = {}
    for name, (found, verdict, lock) in judged.items():
        own = of_tuple.get(id(found))
        if own is None:
            own = of_tuple[id(found)] = tuple(shared[deviation] for deviation in found)
        nodes[name] = NodeVerdict(name, verdict, own, lock)
    return nodes, list(shared.values())


Judged = tuple[tuple[Deviation, ...], Verdict, str | None]
"""Deviations of a node, its verdict, digest of the lock that counted."""

_OUT_OF_SERVICE = ("repair", "held")


class _Judge:
    """Judges nodes, keeping the result of every distinct (facts, attributes read, SKU, locks): a fleet has few."""

    def __init__(self, grouper: factsets.Grouper, day: datetime.date) -> None:
        self._known: dict[tuple[object, ...], tuple[Judged, tuple[rules.Undecided, ...]]] = {}
        self._groups = grouper
        self._day = day
        self._alike = breaches.Alike(rules.reads, host_state.reads, next_boot.reads)
        self._keys: dict[NodeName, tuple[object, ...]] = {}
        self.ledger = breaches.Ledger()

    def node(self, one: Expectation, facts: NodeFacts | None) -> Judged:
        """What is to be said of one node, its fabric left aside."""
        lock = one.lock.full if one.lock else None
        if facts is None:
            return (_not_read(),), Verdict.UNREACHABLE, lock
        if facts.unreachable is not None:
            return (_unreachable(facts.unreachable),), Verdict.UNREACHABLE, lock
        if one.lock is None:
            return (_no_lock(),), Verdict.UNREADABLE, None
        before = one.previous.full if one.previous is not None else None
        alike = self._groups.number(facts.facts), facts.attributes.get("gpus"), self._alike.of(facts.attributes)
        key = (alike, one.sku.sku, one.lock.full, before, one.node.waivers, facts.others, one.sources)
        self._keys[one.node.name] = alike
        if (known := self._known.get(key)) is None:
            known = self._known[key] = _judge(facts, one, one.lock, self._day)
        judged, undecided = known
        if one.node.state.value not in _OUT_OF_SERVICE:
            self.ledger.add(undecided, one.node.name)
        return judged

    def members(
        self,
        serving: Sequence[Expectation],
        facts: Mapping[NodeName, NodeFacts],
        judged: Mapping[NodeName, Judged],
    ) -> list[breaches.Member]:
        """The nodes that were judged, as the rules about groups take them."""
        return [
            breaches.Member(
                facts[one.node.name],
                one.node.domain,
                self._keys[one.node.name],
                breaches.explained_by(judged[one.node.name][0]),
                one.sku,
                one.previous if one.previous and judged[one.node.name][2] == one.previous.full else one.lock,
            )
            for one in serving
            if one.node.name in self._keys
        ]


def _judge(
    node: NodeFacts, one: Expectation, lock: Lock, day: datetime.date
) -> tuple[Judged, tuple[rules.Undecided, ...]]:
    """(deviations, verdict and lock that counts; rules left open) of one node."""
    sku, previous, facts = one.sku, one.previous, node.facts
    wrong_instances, present = expected_instances.judge(facts, node.attributes.get("gpus"), sku, lock)

    def against(lock: Lock) -> tuple[Deviation, ...]:
        found = offers.by_choice(deviations.of(facts, lock, present), facts, one.sources)
        found = host_state.shadowed(facts, node.attributes, found)
        found += tuple(host_state.holds(facts, node.attributes, lock, found))
        found += next_boot.judge(facts, node.attributes, lock)
        found += siblings.unlike(facts, [pin.component for pin in lock.pins], alone=False)
        if node.others:
            found += sources.deviations_of(facts, node.others, lock.coordinates(sku.all_slots()))
        return waivers.applied((*wrong_instances, *found), one.node.waivers, facts, day)

    found = against(lock)
    verdict = worst([Verdict.ADMIT, *(deviation.verdict for deviation in found)])
    counts = lock
    if verdict is not Verdict.ADMIT and previous is not None and previous.full != lock.full:
        before = against(previous)
        if all(deviation.verdict is Verdict.ADMIT for deviation in before):
            found, verdict, counts = before, Verdict.PENDING_ROLLOUT, previous
        elif len(before) < len(found):
            # It has not begun to move: what is wrong is wrong against the lock it comes from.
            found, counts = before, previous
            verdict = worst([Verdict.ADMIT, *(deviation.verdict for deviation in before)])
    broken, undecided = breaches.of_node(node, sku, counts, found, one.waived_rules)
    verdict = worst([verdict, *(deviation.verdict for deviation in broken)])
    return ((*found, *broken), verdict, counts.full), undecided


def findings_of(by_node: Mapping[NodeName, Iterable[Deviation]]) -> dict[Deviation, Finding]:
    """One finding for each distinct deviation, naming every node that has it, in the order given."""
    nodes: dict[Deviation, list[NodeName]] = {}
    # Most nodes share one tuple of deviations: hash each tuple's members once, not once per node.
    shared: dict[int, tuple[Iterable[Deviation], list[NodeName]]] = {}
    for name, found in by_node.items():
        shared.setdefault(id(found), (found, []))[1].append(name)
    for found, names in shared.values():
        for deviation in found:
            nodes.setdefault(deviation, []).extend(names)
    order = {name: index for index, name in enumerate(by_node)}
    return {
        deviation: breaches.finding(deviation, tuple(sorted(names, key=order.__getitem__)))
        for deviation, names in nodes.items()
    }


def _domains(
    serving: Sequence[Expectation], results: Mapping[NodeName, NodeVerdict], skewed: Collection[DomainName]
) -> dict[DomainName, Verdict]:
    members: dict[DomainName, list[Verdict]] = {}
    for one in serving:
        members.setdefault(one.node.domain, []).append(results[one.node.name].verdict)
    return {
        domain: worst([*verdicts, Verdict.SKEWED] if domain in skewed else verdicts)
        for domain, verdicts in members.items()
    }


def _baseline(expectations: Sequence[Expectation]) -> str:
    locks = {one.lock.full: one.lock for one in expectations if one.lock is not None}
    before = {one.previous.full: one.previous for one in expectations if one.previous is not None}
    if not locks:
        return "no lock: nothing to compare with"
    names = ", ".join(f"{lock.pinset}@{lock.os} {digest[:16]}" for digest, lock in locks.items())
    came_from = ", ".join(f"{lock.pinset} {digest[:16]}" for digest, lock in before.items() if digest not in locks)
    return f"lock {names}" + (f"; during the roll-out also {came_from}" if came_from else "")


def _unreachable(reason: str) -> Deviation:
    return Deviation(
        id="unreachable",
        severity=Severity.BLOCK,
        verdict=Verdict.UNREACHABLE,
        coordinate=None,
        expected="an answer",
        observed=reason,
        cause="the node did not answer",
        remedy="see the reason; the node keeps what it has until it can be read",
    )


def _not_read() -> Deviation:
    return Deviation(
        id="not-read",
        severity=Severity.BLOCK,
        verdict=Verdict.UNREACHABLE,
        coordinate=None,
        expected="a reading",
        observed="not in this snapshot",
        cause="the sweep did not include the node",
        remedy="read it: `lockstep audit`",
    )


def _no_lock() -> Deviation:
    return Deviation(
        id="no-lock",
        severity=Severity.BLOCK,
        verdict=Verdict.UNREADABLE,
        coordinate=None,
        expected="a lock",
        observed="none",
        cause="the node has no lock assigned",
        remedy="`lockstep pin lock FLEET`",
    )
