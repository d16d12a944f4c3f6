"""Rules over what was read: breaches become findings ``rule.ID``, what could not be decided is listed.

A breach at a place where a pin of the node is broken is that pin's consequence: the lock itself keeps the rules, so
that the pin is the finding and mending it the remedy. Without a lock every breach is a finding.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from lockstep.base.names import DomainName, NodeName
from pinsets import rules
from pinsets.deviations import Deviation
from pinsets.facts import Coordinate, NodeFacts
from pinsets.findings import Finding, Severity, Undecided, Verdict
from pinsets.model import Lock

if TYPE_CHECKING:
    from inventory.model import Sku

__all__ = ["Alike", "Groups", "Ledger", "Member", "explained_by", "finding", "of_groups", "of_node"]

VERDICTS: Final = {
    Severity.BLOCK: Verdict.DRIFTED,
    Severity.GROUP_BLOCK: Verdict.SKEWED,
    Severity.POWER_CYCLE: Verdict.PENDING_POWER_CYCLE,
    Severity.REBOOT: Verdict.PENDING_REBOOT,
    Severity.RESET: Verdict.PENDING_RESET,
    Severity.RELOAD: Verdict.PENDING_RELOAD,
    Severity.WARN: Verdict.ADMIT,
    Severity.INFO: Verdict.ADMIT,
}


class Ledger:
    """Rules that could not be decided, with the nodes and what was missing; one entry a rule."""

    def __init__(self) -> None:
        self._judgements: dict[int, tuple[tuple[rules.Undecided, ...], list[NodeName]]] = {}

    def add(self, undecided: tuple[rules.Undecided, ...], node: NodeName) -> None:
        """What one judgement left open on a node; the same judgement of many nodes is given as the same object."""
        if undecided:
            self._judgements.setdefault(id(undecided), (undecided, []))[1].append(node)

    def add_group(self, undecided: tuple[rules.Undecided, ...], nodes: Iterable[NodeName]) -> None:
        """What a judgement of a group left open: on all of its nodes."""
        if undecided:
            self._judgements.setdefault(id(undecided), (undecided, []))[1].extend(nodes)

    def entries(self) -> tuple[Undecided, ...]:
        """By rule."""
        nodes: dict[str, list[list[NodeName]]] = defaultdict(list)
        missing: dict[str, dict[str, None]] = defaultdict(dict)
        tried: set[str] = set()
        for undecided, names in self._judgements.values():
            for one in undecided:
                nodes[one.rule.id].append(names)
                missing[one.rule.id].update(dict.fromkeys(one.missing))
                if one.tried:
                    tried.add(one.rule.id)
        return tuple(
            Undecided(
                rule,
                tuple(dict.fromkeys(itertools.chain.from_iterable(listed))),
                tuple(itertools.islice(missing[rule], _SHOWN)),
                rule in tried,
            )
            for rule, listed in sorted(nodes.items())
        )


_SHOWN: Final = 8
"""Missing operands shown for one rule: their number grows with the fleet, what they say does not."""


def of_node(
    facts: NodeFacts,
    sku: Sku | None,
    lock: Lock | None,
    found: Sequence[Deviation],
    waived: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[Deviation, ...], tuple[rules.Undecided, ...]]:
    """(deviations for breaches that no pin explains, rules left open) of one node.

    ``waived``: rule → reason, of the node's pinset; such a breach is an info.
    """
    outcome = rules.of_node(facts, rules.Context(sku=sku, lock=lock, level="node"))
    explained = explained_by(found)
    pinned = frozenset(pin.component for pin in lock.pins) if lock is not None else None
    return (
        tuple(
            _waived(_deviation(one), waived[one.rule.id])
            if one.rule.id in waived
            else _held(_deviation(one), one, pinned)
            for one in outcome.breaches
            if explained.isdisjoint(one.coordinates) and not (sku is not None and one.rule.id in _BY_SKU)
        ),
        outcome.undecided,
    )


_BY_SKU: Final = frozenset({"F3-state"})
"""Rules about what `pinsets.fabrics` tells by slot where a SKU says what to expect."""


def _held(deviation: Deviation, breach: rules.Breach, pinned: frozenset[str] | None) -> Deviation:
    """A node is pending only for what its lock pins: an act that the lock does not ask for is advice."""
    asks = breach.severity in _PENDING and breach.coordinates and pinned is not None
    if not asks or any(_family(place.component) in (pinned or ()) for place in breach.coordinates):
        return deviation
    return replace(deviation, severity=Severity.WARN, verdict=Verdict.ADMIT)


_PENDING: Final = (Severity.POWER_CYCLE, Severity.REBOOT, Severity.RESET, Severity.RELOAD)


def _family(component: str) -> str:
    """``driver`` for ``driver.flavour``: a part of what is pinned is pinned with it. Firmware has no such whole."""
    head, _, _ = component.partition(".")
    return component if head in ("firmware", "settings") else head


def _waived(deviation: Deviation, reason: str) -> Deviation:
    return replace(
        deviation,
        id=f"waived.{deviation.id}",
        severity=Severity.INFO,
        verdict=Verdict.ADMIT,
        cause=f"{deviation.cause}; waived by the pinset: {reason}",
    )


def explained_by(found: Iterable[Deviation]) -> frozenset[Coordinate]:
    """Places at which a node's own deviations already ask for something."""
    return frozenset(one.coordinate for one in found if one.coordinate is not None and one.verdict is not Verdict.ADMIT)


def _deviation(breach: rules.Breach) -> Deviation:
    return Deviation(
        id=f"rule.{breach.rule.id}",
        severity=breach.severity,
        verdict=Verdict.ADMIT if breach.use is not None else VERDICTS[breach.severity],
        coordinate=breach.coordinates[0] if breach.coordinates else None,
        expected=breach.expected,
        observed=breach.observed,
        cause=breach.rule.message,
        remedy=breach.rule.remedy,
        use=breach.use,
        doubtful=breach.doubtful,
    )


@dataclass(frozen=True, slots=True)
class Member:
    """One node of a group."""

    facts: NodeFacts
    domain: DomainName | None
    alike: object
    """Equal for nodes whose facts and attributes say the same to every rule."""
    explained: frozenset[Coordinate] = frozenset()
    sku: Sku | None = None
    lock: Lock | None = None


@dataclass(slots=True)
class Groups:
    """What rules say of the pool and of its NVLink domains."""

    findings: list[Finding] = field(default_factory=list)
    skewed: dict[NodeName, Verdict] = field(default_factory=dict)
    skewed_domains: set[DomainName] = field(default_factory=set)


def of_groups(members: Sequence[Member], ledger: Ledger) -> Groups:
    """Breaches of the rules about groups: of all members, and of each domain; what stays open goes into ``ledger``.

    Nodes that count against different locks are not held against each other: a roll-out is no skew. Neither is a node
    whose own deviation stands at the coordinate of a breach: when it is mended, it agrees with the others.
    """
    result = Groups()
    for group in _by_lock(members):
        _one_group(result, ledger, group, "pool")
    by_domain: dict[DomainName, list[Member]] = defaultdict(list)
    for member in members:
        if member.domain is not None:
            by_domain[member.domain].append(member)
    quiet: dict[frozenset[object], tuple[rules.Undecided, ...]] = {}
    for domain in by_domain.values():
        for group in _by_lock(domain):
            # Racks in step all look alike: what was judged without a breach once needs no second look.
            key = frozenset((member.alike, member.explained) for member in group)
            if key in quiet:
                ledger.add_group(quiet[key], [member.facts.node for member in group])
            elif (open_ := _one_group(result, ledger, group, "domain")) is not None:
                quiet[key] = open_
    return result


def _by_lock(members: Sequence[Member]) -> Iterable[list[Member]]:
    found: dict[str | None, list[Member]] = defaultdict(list)
    for member in members:
        found[member.lock.full if member.lock is not None else None].append(member)
    return found.values()


def _one_group(
    result: Groups, ledger: Ledger, members: Sequence[Member], level: Literal["domain", "pool"]
) -> tuple[rules.Undecided, ...] | None:
    """The rules left open; None where one is broken."""
    if len(members) < 2:
        return ()
    breaches, undecided = _judged(members, level, None)
    ledger.add_group(undecided, [member.facts.node for member in members])
    for rule in dict.fromkeys(breach.rule for breach, _ in breaches):
        places = {place for breach, _ in breaches if breach.rule is rule for place in breach.coordinates}
        rest = [member for member in members if member.explained.isdisjoint(places)]
        mine = [pair for pair in breaches if pair[0].rule is rule]
        if len(rest) < len(members):
            mine = _judged(rest, level, rule)[0] if len(rest) > 1 else []
        for breach, named in mine:
            found = _deviation(breach)
            result.findings.append(finding(found, tuple(one.facts.node for one in named)))
            if found.verdict is not Verdict.ADMIT:
                result.skewed.update((one.facts.node, found.verdict) for one in named)
                if level == "domain":
                    result.skewed_domains.update(one.domain for one in named if one.domain is not None)
    return undecided if not breaches else None


def _judged(
    members: Sequence[Member], level: Literal["domain", "pool"], only: rules.Rule | None
) -> tuple[list[tuple[rules.Breach, list[Member]]], tuple[rules.Undecided, ...]]:
    """(breaches with the nodes they name, rules left open) of a level, or of one rule; nodes that read alike are looked
    at once.
    """
    classes: dict[object, list[Member]] = defaultdict(list)
    for member in members:
        classes[member.alike].append(member)
    first = members[0]
    outcome = rules.of_group(
        [alike[0].facts for alike in classes.values()],
        rules.Context(sku=first.sku, lock=first.lock, level=level),
        (only,) if only is not None else None,
        weights=[len(alike) for alike in classes.values()],
    )
    standing_for = {alike[0].facts.node: alike for alike in classes.values()}
    order = {member.facts.node: index for index, member in enumerate(members)}
    named = [
        (
            breach,
            sorted(
                (one for name in breach.nodes or standing_for for one in standing_for[name]),
                key=lambda one: order[one.facts.node],
            ),
        )
        for breach in outcome.breaches
    ]
    return named, outcome.undecided


def finding(deviation: Deviation, nodes: tuple[NodeName, ...]) -> Finding:
    """The finding of one deviation on these nodes."""
    return Finding(
        id=deviation.id,
        severity=deviation.severity,
        coordinate=deviation.coordinate,
        nodes=nodes,
        expected=deviation.expected,
        observed=deviation.observed,
        cause=deviation.cause,
        remedy=deviation.remedy,
        use=deviation.use,
        doubtful=deviation.doubtful,
    )


class Alike:
    """Which attributes any judgement reads, asked once per key."""

    def __init__(self, *readers: Callable[[str], bool]) -> None:
        self._readers = readers
        self._known: dict[str, bool] = {}

    def of(self, attributes: Mapping[str, str]) -> tuple[str, ...]:
        """Keys and values of the attributes that are read, as one key of a cache."""
        known, found = self._known, []
        for key, value in attributes.items():
            read = known.get(key)
            if read is None:
                read = known[key] = any(reader(key) for reader in self._readers)
            if read:
                found += [key, value]
        return tuple(found)
