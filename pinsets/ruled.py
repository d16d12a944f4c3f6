"""Rules over nodes without a fleet file: every breach is a finding, domains are what the fabric reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockstep.base.names import DomainName, NodeName
from pinsets import breaches, fabrics, factsets, host_state, rules, siblings
from pinsets.deviations import Deviation
from pinsets.facts import Coordinate, NodeFacts, Snapshot
from pinsets.findings import Comparison, Finding, NodeVerdict, Verdict, by_severity, worst

__all__ = ["added"]


def added(comparison: Comparison, snapshot: Snapshot, grouper: factsets.Grouper) -> Comparison:
    """``comparison`` with what the rules and the hosts' own state say of each node and of the group."""
    ledger = breaches.Ledger()
    alike = breaches.Alike(rules.reads)
    members = [
        breaches.Member(
            node,
            _domain(node),
            (grouper.number(node.facts), alike.of(node.attributes)),
            _odd(comparison.nodes[node.node]),
        )
        for node in snapshot.nodes.values()
        if node.unreachable is None
    ]
    holders: dict[Deviation, list[NodeName]] = {}
    known: dict[object, tuple[tuple[Deviation, ...], tuple[rules.Undecided, ...]]] = {}
    for member in members:
        if (judged := known.get(member.alike)) is None:
            broken, undecided = breaches.of_node(member.facts, None, None, ())
            own = siblings.unlike(member.facts.facts, _components(member.explained), alone=True)
            judged = known[member.alike] = ((*broken, *own), undecided)
        ledger.add(judged[1], member.facts.node)
        for deviation in (*judged[0], *host_state.disks(member.facts.attributes)):
            holders.setdefault(deviation, []).append(member.facts.node)
    group = breaches.of_groups(members, ledger)
    single = [(breaches.finding(one, tuple(names)), one.verdict) for one, names in holders.items()]
    found = [*single, *((one, _verdict(one)) for one in group.findings)]
    return replace(
        comparison,
        nodes=_nodes(comparison.nodes, found),
        findings=tuple(by_severity([*comparison.findings, *(finding for finding, _ in found)])),
        undecided=ledger.entries(),
    )


def _components(places: frozenset[Coordinate]) -> frozenset[str]:
    return frozenset(place.component for place in places)


def _odd(node: NodeVerdict) -> frozenset[Coordinate]:
    """Where it differs from the others already: a rule that wants one value says nothing more there."""
    return frozenset(
        one.coordinate
        for one in node.findings
        if one.coordinate is not None and breaches.VERDICTS[one.severity] is not Verdict.ADMIT
    )


def _verdict(finding: Finding) -> Verdict:
    return Verdict.ADMIT if finding.use is not None else breaches.VERDICTS[finding.severity]


def _domain(node: NodeFacts) -> DomainName | None:
    """The fabric's own name, where it has one."""
    uuid, clique = node.attributes.get("fabric.cluster-uuid"), node.attributes.get("fabric.clique")
    if not uuid or not clique or fabrics.ZERO_UUID in uuid or "," in uuid + clique:
        return None
    return DomainName(f"{uuid} {clique}")


def _nodes(nodes: Mapping[NodeName, NodeVerdict], found: list[tuple[Finding, Verdict]]) -> dict[NodeName, NodeVerdict]:
    own: dict[NodeName, list[tuple[Finding, Verdict]]] = {}
    for finding, verdict in found:
        for name in finding.nodes:
            own.setdefault(name, []).append((finding, verdict))
    return {
        name: NodeVerdict(
            name,
            worst([node.verdict, *(verdict for _, verdict in own[name])]),
            (*node.findings, *(finding for finding, _ in own[name])),
            node.lock,
        )
        if name in own
        else node
        for name, node in nodes.items()
    }
