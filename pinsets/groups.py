"""Node to node and instance to instance: nodes that are each fine alone and do not fit together.

Two equal nodes can both satisfy an ``accept`` list and still differ. Where the pin's
scope is ``job`` or ``domain`` that is skew; where it is ``node`` the list's source says
that the values are equal. What no pin names is compared too, and only warned of.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lockstep.base import hostranges
from lockstep.base.names import ComponentName, DomainName, NodeName
from pinsets import components, factsets
from pinsets.facts import Coordinate, Snapshot, Version
from pinsets.findings import Finding, Severity, Verdict
from pinsets.model import Enforce, Lock, LockedPin, Scope

if TYPE_CHECKING:
    from pinsets.expectations import Expectation

__all__ = ["Groups", "judge"]


@dataclass(slots=True)
class Groups:
    """What the second and third level found."""

    findings: list[Finding] = field(default_factory=list)
    skewed: set[NodeName] = field(default_factory=set)
    skewed_domains: set[DomainName] = field(default_factory=set)
    common: dict[Coordinate, str] = field(default_factory=dict)
    """Coordinate → the value most nodes have, readable ones only."""


def judge(
    serving: Sequence[Expectation],
    snapshot: Snapshot,
    verdicts: Mapping[NodeName, tuple[Verdict, str | None]],
    grouper: factsets.Grouper,
) -> Groups:
    """Skew among the nodes in service that were read. ``verdicts``: each node's own, and the lock that counted."""
    facts = snapshot.nodes
    read = [one for one in serving if one.node.name in facts and facts[one.node.name].facts]
    result = Groups()
    sets = factsets.of(snapshot, [one.node.name for one in read], grouper)
    values = sets.values()
    result.common = {coordinate: counts.most_common(1)[0][0] for coordinate, counts in values.items() if counts}
    _unpinned(result, read, sets, values)
    in_step = _in_step(read, verdicts)
    _accepted_but_unequal(result, in_step, snapshot)
    _mixed_domains(result, in_step)
    return result


def _in_step(
    read: Sequence[Expectation], verdicts: Mapping[NodeName, tuple[Verdict, str | None]]
) -> list[tuple[Lock, list[Expectation]]]:
    """Nodes in step, by the lock they are in step with."""
    locks: dict[str, tuple[Lock, list[Expectation]]] = {}
    for one in read:
        verdict, digest = verdicts[one.node.name]
        if not verdict.in_step or digest is None:
            continue
        if digest not in locks:
            lock = one.lock if one.lock is not None and one.lock.full == digest else one.previous
            if lock is None:
                continue
            locks[digest] = (lock, [])
        locks[digest][1].append(one)
    return list(locks.values())


def _unpinned(
    result: Groups,
    read: Sequence[Expectation],
    sets: factsets.FactSets,
    values: Mapping[Coordinate, Counter[str]],
) -> None:
    """What no pin names and nodes differ in: a warning each, the majority first."""
    pinned = {
        (pin.component, layer)
        for lock in {one.lock.full: one.lock for one in read if one.lock}.values()
        for pin in lock.pins
        for layer in pin.layers
    }
    components = {pin for pin, _ in pinned}
    for coordinate, counts in values.items():
        # Another layer of a pinned component belongs to that pin's findings.
        if coordinate.component in components or len(counts) < 2:
            continue
        common, most = counts.most_common(1)[0]
        for value in sorted(counts):
            if value == common:
                continue
            nodes = sets.nodes_with(coordinate, value)
            result.findings.append(
                Finding(
                    id=f"skew.{coordinate.component}",
                    severity=Severity.WARN,
                    coordinate=coordinate,
                    nodes=nodes,
                    expected=f"{common} (as on {most} of {sum(counts.values())} nodes)",
                    observed=value,
                    cause="no pin names it, and the nodes differ",
                    remedy=f"pin {coordinate.component}, or bring the nodes together",
                )
            )


def _accepted_but_unequal(
    result: Groups, in_step: Sequence[tuple[Lock, list[Expectation]]], snapshot: Snapshot
) -> None:
    """Pins of scope job or domain whose ``accept`` list lets nodes, or GPUs of one node, differ."""
    for lock, members in in_step:
        for pin in lock.pins:
            if not pin.accept or pin.scope is Scope.NODE or pin.enforce is not Enforce.BLOCK:
                continue
            groups: Iterable[tuple[str, list[Expectation]]] = [("", members)]
            if pin.scope is Scope.DOMAIN:
                by_domain: dict[str, list[Expectation]] = defaultdict(list)
                for one in members:
                    by_domain[one.node.domain].append(one)
                groups = by_domain.items()
            for domain, group in groups:
                for layer in pin.layers:
                    for slot in _compared_apart(pin, layer.value, group, snapshot):
                        _one_group(result, pin.component, layer.value, domain, group, snapshot, slot)


def _compared_apart(
    pin: LockedPin, layer: str, group: Sequence[Expectation], snapshot: Snapshot
) -> Sequence[str | None]:
    """The slots that are compared each by itself; None alone where all instances of a machine must be alike."""
    entry = components.load().get(ComponentName(pin.component))
    if entry is None or entry.instance is None or entry.alike:
        return (None,)
    return sorted(
        {
            coordinate.instance
            for one in group
            for coordinate in snapshot.nodes[one.node.name].facts
            if coordinate.component == pin.component and coordinate.layer == layer and coordinate.instance
        }
    )


def _mixed_domains(result: Groups, in_step: Sequence[tuple[Lock, list[Expectation]]]) -> None:
    """Domains half way through a roll-out: each node equals its lock, and the locks differ in a pin of scope domain.

    Waves take whole domains, so this is a wave that did not end. It makes the domain skewed and no node.
    """
    if len(in_step) < 2:
        return
    by_domain: dict[DomainName, list[tuple[Lock, list[NodeName]]]] = defaultdict(list)
    for lock, members in in_step:
        names: dict[DomainName, list[NodeName]] = defaultdict(list)
        for one in members:
            names[one.node.domain].append(one.node.name)
        for domain, listed in names.items():
            by_domain[domain].append((lock, listed))
    for domain, parts in by_domain.items():
        parts.sort(key=lambda part: (-len(part[1]), part[0].full))
        common, most = parts[0]
        for other, few in parts[1:]:
            for pin in other.pins:
                kept = common.pin(pin.component)
                if pin.scope is not Scope.DOMAIN or kept is None or kept.version == pin.version:
                    continue
                result.skewed_domains.add(domain)
                result.findings.append(
                    Finding(
                        id=f"domain.skew.{pin.component}",
                        severity=Severity.GROUP_BLOCK,
                        coordinate=Coordinate(ComponentName(pin.component), pin.layers[0]),
                        nodes=tuple(few),
                        expected=f"{kept.version}, as on {hostranges.fold(most)}",
                        observed=pin.version,
                        cause=f"domain {domain} is half way between two locks, {other.pinset} and {common.pinset}",
                        remedy="let the roll-out go on: `lockstep up`",
                    )
                )


def _one_group(
    result: Groups,
    component: str,
    layer: str,
    domain: str,
    group: Sequence[Expectation],
    snapshot: Snapshot,
    slot: str | None,
) -> None:
    """One coordinate over one group: that of one slot, or with None of all, which must agree within a node too."""
    holders: dict[str, dict[NodeName, Coordinate]] = defaultdict(dict)
    for one in group:
        for coordinate, fact in snapshot.nodes[one.node.name].facts.items():
            here = coordinate.component == component and coordinate.layer == layer
            if here and slot in (None, coordinate.instance) and isinstance(fact.observation, Version):
                holders[fact.observation.value].setdefault(one.node.name, coordinate)
    if len(holders) < 2:
        return
    common = max(holders, key=lambda value: (len(holders[value]), value))
    domain_of = {one.node.name: one.node.domain for one in group}
    for value in sorted(holders):
        if value == common:
            continue
        nodes = tuple(holders[value])
        result.skewed.update(nodes)
        if domain:
            result.skewed_domains.update(domain_of[name] for name in nodes)
        result.findings.append(
            Finding(
                id=f"domain.skew.{component}" if domain else f"skew.{component}",
                severity=Severity.GROUP_BLOCK,
                coordinate=next(iter(holders[value].values())),
                nodes=nodes,
                expected=f"{common}, as on {hostranges.fold(holders[common])}",
                observed=value,
                cause="each value is accepted alone, and "
                + (f"domain {domain} must have one" if domain else "the nodes of a job must have one"),
                remedy="bring the nodes to one value, or keep them out of one job",
            )
        )
