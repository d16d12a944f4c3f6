"""Comparison without a fleet file: the baseline is one node, or what at least 80 % of the nodes have.

Said plainly, per coordinate: where fewer agree there is no baseline, and nobody can tell which
side is right. Instances are compared by slot across nodes, never with each other:
two switches of one board may rightly carry different firmware.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.base import errors, limits
from lockstep.base.names import ComponentName, NodeName
from pinsets import deviations, factsets, ruled
from pinsets.deviations import shown
from pinsets.facts import Coordinate, Fact, Layer, NodeFacts, Observation, Snapshot, Unreadable, Version
from pinsets.findings import Comparison, Finding, NodeVerdict, Severity, Verdict, by_severity, worst

__all__ = ["compare_without_fleet"]


def compare_without_fleet(snapshot: Snapshot, like: NodeName | None = None) -> Comparison:
    """Every node against ``like``, or against the majority. Raises `errors.InputError` when ``like`` was not read."""
    names = [name for name, node in snapshot.nodes.items() if node.unreachable is None]
    grouper = factsets.Grouper()
    sets = factsets.of(snapshot, names, grouper)
    work = _Work()
    for name, node in snapshot.nodes.items():
        if node.unreachable is not None:
            work.add("unreachable", Severity.BLOCK, None, "an answer", node.unreachable, name, Verdict.UNREACHABLE)
        elif _mute(node):
            said = "unreadable: the GPUs could not be listed"
            work.add("unreadable.gpu", Severity.BLOCK, _GPUS, "a list of GPUs", said, name, Verdict.UNREADABLE)
    if like is not None:
        baseline, sentence = _like(snapshot, like)
    else:
        baseline, sentence = _majority(sets, work, len(names))
    for facts, members in sets.groups:
        _one_set(work, facts, members, baseline)
    return ruled.added(_result(snapshot, work, baseline, sentence), snapshot, grouper)


_GPUS = Coordinate(ComponentName("gpu"), Layer.RUNNING)


def _mute(node: NodeFacts) -> bool:
    """Whether the probe found a driver that runs and got no list of GPUs from it.

    Where that is so on every node there is no fact that one of them could lack: nobody knows what their GPUs run.
    """
    if "gpus" in node.attributes:
        return False
    driver = node.facts.get(deviations.DRIVER_RUNNING)
    probed = driver is not None and isinstance(driver.observation, Version) and driver.source.startswith("ssh:")
    return probed and deviations.driver_answers(node.facts)


Key = tuple[str, Severity, Coordinate | None, str, str]


@dataclass(slots=True)
class _Work:
    """Findings by what they say, and what they make of each node."""

    nodes: dict[Key, list[NodeName]] = field(default_factory=dict)
    verdicts: dict[NodeName, list[Verdict]] = field(default_factory=dict)
    keys: dict[NodeName, list[Key]] = field(default_factory=dict)
    no_baseline: list[Coordinate] = field(default_factory=list)
    unreadable_everywhere: list[Coordinate] = field(default_factory=list)

    def add(
        self,
        kind: str,
        severity: Severity,
        coordinate: Coordinate | None,
        expected: str,
        observed: str,
        node: NodeName,
        verdict: Verdict,
    ) -> None:
        key = (kind, severity, coordinate, expected, observed)
        self.nodes.setdefault(key, []).append(node)
        self.keys.setdefault(node, []).append(key)
        self.verdicts.setdefault(node, []).append(verdict)


def _like(snapshot: Snapshot, like: NodeName) -> tuple[dict[Coordinate, str], str]:
    """(what the one node has, sentence)."""
    node = snapshot.nodes.get(like)
    if node is None:
        raise errors.InputError(f"--like {like}: no such node among those read", hint="name one of --hosts")
    if node.unreachable is not None:
        raise errors.NotMeasuredError(f"--like {like}: {node.unreachable}", hint="take a node that answers")
    unread = sorted(at for at, fact in node.facts.items() if isinstance(fact.observation, Unreadable))
    baseline = {at: str(fact.observation) for at, fact in node.facts.items() if at not in unread}
    gaps = f"; not compared, unreadable there: {', '.join(map(str, unread))}" if unread else ""
    return baseline, f"node {like}{gaps}"


def _majority(sets: factsets.FactSets, work: _Work, total: int) -> tuple[dict[Coordinate, str], str]:
    """(coordinate → value of the majority, sentence)."""
    baseline: dict[Coordinate, str] = {}
    values = sets.values()
    for coordinate, counts in values.items():
        if coordinate.instance is not None:
            # A GPU that is gone leaves no fact behind; as a value it is "absent".
            _count_missing(counts, sets, coordinate)
        read = sum(counts.values())
        if read == 0 or read < total * (1 - limits.MAJORITY_SHARE):
            work.unreadable_everywhere.append(coordinate)
            continue
        value, most = counts.most_common(1)[0]
        if most >= read * limits.MAJORITY_SHARE:
            baseline[coordinate] = value
        else:
            work.no_baseline.append(coordinate)
            _without_baseline(work, sets, coordinate, counts)
    few = "one node alone: nothing to compare it with" if total else "nothing: no node answered"
    sentence = f"the majority of {total} nodes" if total > 1 else few
    if work.no_baseline:
        listed = ", ".join(map(str, sorted(work.no_baseline)))
        sentence += f"; none for {listed}, where fewer than {limits.MAJORITY_SHARE:.0%} agree"
    if work.unreadable_everywhere:
        sentence += f"; not compared, hardly readable: {', '.join(map(str, sorted(work.unreadable_everywhere)))}"
    return baseline, sentence


def _count_missing(counts: Counter[str], sets: factsets.FactSets, coordinate: Coordinate) -> None:
    for facts, names in sets.groups:
        if coordinate not in facts and _has_component(facts, coordinate):
            counts["absent"] += len(names)


def _has_component(facts: Mapping[Coordinate, Fact], like: Coordinate) -> bool:
    """Whether the reading has another instance of the same thing, so that this one is gone and not merely unread."""
    return any(
        one.component == like.component and one.layer is like.layer and not isinstance(fact.observation, Unreadable)
        for one, fact in facts.items()
    )


def _without_baseline(work: _Work, sets: factsets.FactSets, coordinate: Coordinate, counts: Counter[str]) -> None:
    total = sum(counts.values())
    split = ", ".join(f"{value} on {count}" for value, count in counts.most_common(4))
    rest = len(counts) - 4
    expected = f"one value; {total} nodes have {split}" + (f" and {rest} more" if rest > 0 else "")
    for facts, names in sets.groups:
        seen = _seen(facts, coordinate)
        if isinstance(seen, Unreadable):
            continue
        for name in names:
            work.add(
                f"skew.{coordinate.component}",
                Severity.GROUP_BLOCK,
                coordinate,
                expected,
                shown(seen),
                name,
                Verdict.SKEWED,
            )


def _seen(facts: Mapping[Coordinate, Fact], coordinate: Coordinate) -> Observation:
    from pinsets.facts import ABSENT

    fact = facts.get(coordinate)
    if fact is not None:
        return fact.observation
    if coordinate.instance is not None and _has_component(facts, coordinate):
        return ABSENT
    return Unreadable("not read")


def _one_set(
    work: _Work,
    facts: Mapping[Coordinate, Fact],
    members: tuple[NodeName, ...],
    baseline: Mapping[Coordinate, str],
) -> None:
    for coordinate, expected in baseline.items():
        seen = _seen(facts, coordinate)
        if str(seen) == expected:
            continue
        if isinstance(seen, Unreadable):
            kind, severity, verdict = f"unreadable.{coordinate.component}", Severity.BLOCK, Verdict.UNREADABLE
        elif coordinate.instance is not None and str(seen) == "absent":
            kind, severity, verdict = "instance.missing", Severity.BLOCK, Verdict.SKEWED
        else:
            kind, severity, verdict = f"skew.{coordinate.component}", Severity.GROUP_BLOCK, Verdict.SKEWED
        for name in members:
            work.add(kind, severity, coordinate, expected, shown(seen), name, verdict)
    _beside_the_baseline(work, facts, members, baseline)
    if not any(not isinstance(fact.observation, Unreadable) for fact in facts.values()):
        for name in members:
            work.add("unreadable", Severity.BLOCK, None, "facts", "nothing could be read", name, Verdict.UNREADABLE)


def _beside_the_baseline(
    work: _Work,
    facts: Mapping[Coordinate, Fact],
    members: tuple[NodeName, ...],
    baseline: Mapping[Coordinate, str],
) -> None:
    for coordinate, fact in facts.items():
        if coordinate in baseline:
            continue
        if isinstance(fact.observation, Unreadable) and fact.observation.is_silent:
            # Nothing to compare it with, and yet no state of a node that is in step: the same tool may hang on all.
            kind, said = f"unreadable.{coordinate.component}", str(fact.observation)
            for name in members:
                work.add(kind, Severity.BLOCK, coordinate, "an answer", said, name, Verdict.UNREADABLE)
        elif coordinate.instance is not None and not _ignored(work, coordinate):
            # Only a golden node can leave a coordinate without any expectation: it has no such instance.
            for name in members:
                work.add(
                    "instance.unexpected",
                    Severity.WARN,
                    coordinate,
                    "absent",
                    shown(fact.observation),
                    name,
                    Verdict.ADMIT,
                )


def _ignored(work: _Work, coordinate: Coordinate) -> bool:
    return coordinate in work.no_baseline or coordinate in work.unreadable_everywhere


_CAUSES = {
    "unreachable": ("the node did not answer", "see the reason"),
    "unreadable": ("the node answered and gave no fact", "see the reasons with --format json"),
    "unreadable.gpu": (
        "the vendor tool gave no list, though a driver runs",
        "see the reading's reasons; `lockstep probe` shows the script",
    ),
    "instance.missing": (
        "most nodes have this instance, this one does not",
        "look at the slot: kernel log (Xid 79), reseat or replace",
    ),
    "instance.unexpected": ("the baseline has no such instance", "compare machines of one kind only"),
    "skew": (
        "it differs from the baseline",
        "bring the nodes together; `lockstep pin` writes down which value is right",
    ),
}


def _result(snapshot: Snapshot, work: _Work, baseline: Mapping[Coordinate, str], sentence: str) -> Comparison:
    findings: dict[Key, Finding] = {}
    for key, nodes in work.nodes.items():
        kind, severity, coordinate, expected, observed = key
        cause, remedy = _CAUSES.get(kind) or _CAUSES[kind.split(".")[0]]
        findings[key] = Finding(kind, severity, coordinate, tuple(nodes), expected, observed, cause, remedy)
    return Comparison(
        nodes={
            name: NodeVerdict(
                name,
                worst([Verdict.ADMIT, *work.verdicts.get(name, ())]),
                tuple(findings[key] for key in work.keys.get(name, ())),
            )
            for name in snapshot.nodes
        },
        domains={},
        findings=tuple(by_severity(findings.values())),
        common=dict(baseline),
        baseline=sentence,
    )
