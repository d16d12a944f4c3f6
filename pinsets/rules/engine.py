"""Rules applied to one node, to a group of nodes, to a set of pins, and to a step between two sets. Pure."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
from collections.abc import Iterator, Mapping, Sequence

from lockstep.base.names import NodeName
from pinsets import components, normalisers
from pinsets.facts import Coordinate, NodeFacts
from pinsets.findings import Severity
from pinsets.rules import files, ordering
from pinsets.rules.groups import Crowd
from pinsets.rules.logic import Evidence, Judged, every
from pinsets.rules.model import Breach, Level, Outcome, Rule, Undecided
from pinsets.rules.operands import Attribute, Place
from pinsets.rules.worlds import BASE_ATTRIBUTES, Context, NodeWorld, Readable, SetWorld, instances

__all__ = ["attribute_patterns", "of_change", "of_group", "of_node", "of_set", "parts", "reads", "worlds"]


def of_node(facts: NodeFacts, context: Context, rules: Sequence[Rule] | None = None) -> Outcome:
    """The rules about one node, applied to what was read of it."""
    outcome = _Gathering()
    if facts.unreachable is not None:
        return outcome.result()
    world = NodeWorld(facts, context)
    for rule in _about("node", rules):
        for one in worlds(rule, world):
            outcome.add(rule, _judge(rule, one), (facts.node,))
    return outcome.result()


def of_group(
    nodes: Sequence[NodeFacts],
    context: Context,
    rules: Sequence[Rule] | None = None,
    *,
    weights: Sequence[int] | None = None,
) -> Outcome:
    """The rules about a group of nodes, those of ``context.level``. Nodes that did not answer are left out.

    ``weights``: how many nodes that read alike each of ``nodes`` stands for.
    """
    outcome = _Gathering()
    if context.level == "node":
        return outcome.result()
    crowd = Crowd(
        tuple((one.node, NodeWorld(one, context)) for one in nodes if one.unreachable is None),
        {one.node: weight for one, weight in zip(nodes, weights, strict=True)} if weights is not None else {},
    )
    for rule in _about(context.level, rules):
        outcome.add(rule, _judge_group(rule, crowd), ())
    return outcome.result()


def of_set(pins: Mapping[str, str], context: Context, rules: Sequence[Rule] | None = None) -> Outcome:
    """The rules that a set of pins can break by itself. ``pins``: component → version as written.

    Of a component that carries the CUDA it is built for in its package's version
    (NCCL), give that text.
    """
    outcome = _Gathering()
    world = SetWorld(pins, context)
    for rule in _about("set", rules):
        if rule.demand is not None:
            outcome.add(rule, _judge(rule, world), ())
        else:
            outcome.add(rule, _judge_group(rule, Crowd(((NodeName(""), world),))), ())
    return outcome.result()


def of_change(
    before: Mapping[str, str], after: Mapping[str, str], context: Context, rules: Sequence[Rule] | None = None
) -> Outcome:
    """The rules about a step from one set of pins to another: what cannot be undone."""
    outcome = _Gathering()
    for rule in _about("change", rules):
        step = rule.step
        if step is None or step.of not in before or step.of not in after:
            continue
        order = ordering.of_component(step.of)
        old, new = (normalisers.normalise(step.of, pins[step.of]) for pins in (before, after))
        left = [one.holds(order, old) for one in step.before]
        right = [one.holds(order, new) for one in step.after]
        place = (Coordinate(step.of, components.load()[step.of].layers[0]),)
        if True in left and True in right:
            expected = f"not {' or '.join(one.text for one in step.after)} after {old}"
            outcome.add(rule, Judged(False, (Evidence(place, expected, new),)), ())
        elif (True in left or None in left) and (True in right or None in right):
            outcome.add(rule, Judged(None, missing=(f"{step.of}: {old!r} to {new!r} has no order",)), ())
    return outcome.result()


def reads(key: str) -> bool:
    """Whether any rule looks at an attribute: facts that differ in no such one are judged alike."""
    return _reads(key)


@functools.lru_cache(maxsize=4096)
def _reads(key: str) -> bool:
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in attribute_patterns())


@functools.cache
def attribute_patterns() -> frozenset[str]:
    """Keys of all attributes that rules look at, ``*`` for what depends on node and instance."""
    found = set(BASE_ATTRIBUTES)
    for rule in files.load():
        for part in parts((rule.applies, rule.demand, rule.group)):
            if isinstance(part, Attribute):
                found.add(part.pattern)
    return frozenset(found)


def parts(value: object) -> Iterator[object]:
    """Every operand and condition inside a condition, itself included."""
    if isinstance(value, tuple):
        for one in value:
            yield from parts(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in dataclasses.fields(value):
            yield from parts(getattr(value, field.name))


def _about(level: Level, rules: Sequence[Rule] | None) -> Iterator[Rule]:
    return (rule for rule in (files.load() if rules is None else rules) if level in rule.levels)


def worlds(rule: Rule, world: NodeWorld) -> Iterator[NodeWorld]:
    """The node itself, or once for each instance that was read."""
    if rule.each is None:
        yield world
        return
    named = [part.component for part in parts((rule.applies, rule.demand)) if isinstance(part, Place) and part.each]
    for slot in instances(world.facts, named):
        yield dataclasses.replace(world, instance=slot)


def _judge(rule: Rule, world: Readable) -> Judged:
    if rule.demand is None or _of_another_maker(rule, world):
        return Judged(True)
    if rule.applies is not None:
        there = rule.applies.judge(world)
        if there.truth is not True:
            return Judged(True) if there.truth is False else there
    return rule.demand.judge(world)


def _of_another_maker(rule: Rule, world: Readable) -> bool:
    """Whether the accelerators are known to be of a maker that the rule is not about."""
    if rule.vendor is None:
        return False
    maker = world.attribute("gpu.vendor")
    return maker is not None and maker != rule.vendor


def _judge_group(rule: Rule, crowd: Crowd) -> Judged:
    """The nodes to which the rule applies; where that cannot be told of some, the others alone can break it."""
    if rule.group is None:
        return Judged(True)
    if rule.applies is None:
        return rule.group.judge(crowd) if crowd.members else Judged(True)
    told = [(name, world, rule.applies.judge(world)) for name, world in crowd.members]
    members = tuple((name, world) for name, world, there in told if there.truth is True)
    unknown = tuple(text for _, _, there in told if there.truth is None for text in there.missing)
    judged = rule.group.judge(Crowd(members, crowd.weights)) if members else Judged(True)
    return every([judged, Judged(None, missing=unknown)]) if unknown else judged


class _Gathering:
    """Breaches and undecided rules, one breach for equal deviations of several instances."""

    def __init__(self) -> None:
        self._breaches: dict[tuple[str, str, str, tuple[NodeName, ...]], Breach] = {}
        self._undecided: dict[str, Undecided] = {}

    def add(self, rule: Rule, judged: Judged, nodes: tuple[NodeName, ...]) -> None:
        """What one judgement gave."""
        if judged.truth is None:
            known = self._undecided.get(rule.id)
            missing = (*(known.missing if known else ()), *judged.missing)
            self._undecided[rule.id] = Undecided(rule, tuple(dict.fromkeys(missing)))
        elif judged.truth is False:
            for evidence in judged.evidence or (Evidence((), rule.title, "not so"),):
                self._breach(rule, evidence, evidence.nodes or nodes)

    def _breach(self, rule: Rule, evidence: Evidence, nodes: tuple[NodeName, ...]) -> None:
        doubtful = rule.doubtful or evidence.doubtful
        capped = doubtful and rule.severity is not Severity.INFO
        key = (rule.id, evidence.expected, evidence.observed, nodes)
        known = self._breaches.get(key)
        places = (*(known.coordinates if known else ()), *evidence.places)
        self._breaches[key] = Breach(
            rule=rule,
            severity=Severity.WARN if capped else rule.severity,
            coordinates=tuple(dict.fromkeys(places)),
            nodes=nodes,
            expected=evidence.expected,
            observed=evidence.observed,
            use=rule.use,
            doubtful=doubtful,
        )

    def result(self) -> Outcome:
        """Everything added."""
        return Outcome(tuple(self._breaches.values()), tuple(self._undecided.values()))
