"""The closed list of forms that a condition of a group has: nodes of one NVLink domain, or of one pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lockstep.base.names import ComponentName, NodeName
from pinsets.facts import Coordinate, Layer
from pinsets.rules import ordering
from pinsets.rules.logic import Evidence, Form, Judged, every, some
from pinsets.rules.operands import Operand, Reading, short
from pinsets.rules.worlds import Readable

__all__ = ["Crowd", "Every", "Mixed", "Recipe", "Recipes", "Same", "Some"]


@dataclass(frozen=True, slots=True)
class Crowd:
    """The nodes of one group, in the order given."""

    members: tuple[tuple[NodeName, Readable], ...]
    weights: Mapping[NodeName, int] = field(default_factory=dict)
    """How many nodes that read alike a member stands for; one where nothing is said."""

    def count(self, readings: Iterable[tuple[NodeName, Reading]]) -> Counter[str]:
        """How many nodes have which value."""
        counts: Counter[str] = Counter()
        for name, reading in readings:
            counts[str(reading)] += self.weights.get(name, 1)
        return counts


def _values(operand: Operand, crowd: Crowd) -> tuple[list[tuple[NodeName, Reading]], tuple[str, ...]]:
    """(what was read on whom, what was not)."""
    found, missing = [], []
    for name, world in crowd.members:
        reading = operand.read(world)
        if reading.missing is not None:
            missing.append(f"{name} {reading.missing}" if name else reading.missing)
        else:
            found.append((name, reading))
    return found, tuple(missing)


@dataclass(frozen=True, slots=True)
class Same:
    """Every node has one value of each operand."""

    of: tuple[Operand, ...]
    absent_counts: bool = True
    """Absent on one node and there on another differ; False: only nodes that have it are compared."""

    def __str__(self) -> str:
        among = "" if self.absent_counts else ", where it is there"
        return f"all nodes have one {' and one '.join(str(one) for one in self.of)}{among}"

    def judge(self, world: Crowd) -> Judged:
        """False with the odd nodes named; nodes that could not be read leave it undecided, if the others agree."""
        return every([self._one(operand, world) for operand in self.of])

    def _one(self, operand: Operand, crowd: Crowd) -> Judged:
        found, missing = _values(operand, crowd)
        if not self.absent_counts:
            found = [(name, reading) for name, reading in found if not reading.absent]
        counts = crowd.count(found)
        if len(counts) < 2:
            return Judged(None if missing else True, missing=missing)
        common, most = max(counts.items(), key=lambda item: (item[1], item[0]))
        total = sum(counts.values())
        split = ", ".join(f"{value} on {count}" for value, count in counts.most_common(4))
        # Where no side has more than half, nobody can tell which one is odd.
        even = most * 2 <= total
        expected = f"one value; {split} ({operand})" if even else f"{common}, as on {most} of {total} nodes ({operand})"
        evidence = []
        for value in sorted(set(counts) if even else set(counts) - {common}):
            holders = [(name, reading) for name, reading in found if str(reading) == value]
            evidence.append(
                Evidence(
                    holders[0][1].places,
                    expected,
                    value,
                    any(reading.doubtful for _, reading in holders),
                    tuple(name for name, _ in holders),
                )
            )
        return Judged(False, tuple(evidence))


@dataclass(frozen=True, slots=True)
class Mixed:
    """The nodes have more than one value of an operand."""

    of: Operand

    def __str__(self) -> str:
        return f"nodes differ in {self.of}"

    def judge(self, world: Crowd) -> Judged:
        """Undecided where the readable ones agree and others could not be read."""
        found, missing = _values(self.of, world)
        counts = world.count(found)
        if len(counts) < 2 and missing:
            return Judged(None, missing=missing)
        observed = " and ".join(f"{short(self.of)} {value} on {count}" for value, count in sorted(counts.items()))
        places = found[0][1].places if found else ()
        return Judged(len(counts) > 1, (Evidence(places, "one value", observed),))


@dataclass(frozen=True, slots=True)
class Every:
    """A condition holds on every node."""

    of: Form[Readable]

    def __str__(self) -> str:
        return f"on every node {self.of}"

    def judge(self, world: Crowd) -> Judged:
        """False with the nodes on which it does not hold."""
        return every([_on(self.of, name, member) for name, member in world.members])


@dataclass(frozen=True, slots=True)
class Some:
    """A condition holds on at least one node."""

    of: Form[Readable]

    def __str__(self) -> str:
        return f"on some node {self.of}"

    def judge(self, world: Crowd) -> Judged:
        """True with the nodes on which it holds."""
        return some([_on(self.of, name, member) for name, member in world.members])


def _on(condition: Form[Readable], name: NodeName, world: Readable) -> Judged:
    judged = condition.judge(world)
    named = tuple(
        Evidence(one.places, one.expected, one.observed, one.doubtful, (name,) if name else ())
        for one in judged.evidence
    )
    return Judged(judged.truth, named, tuple(f"{name} {text}" if name else text for text in judged.missing))


@dataclass(frozen=True, slots=True)
class Recipe:
    """One published set: component → normal forms that belong to it."""

    name: str
    values: Mapping[ComponentName, frozenset[str]]

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Recipes:
    """What the nodes of a group run belongs to one published set.

    Only mixing is proved: each value is published, and no one set holds them all. A
    value that no set names (a newer release) leaves it undecided.
    """

    of: tuple[Recipe, ...]

    def __str__(self) -> str:
        return f"all firmware belongs to one of {', '.join(recipe.name for recipe in self.of)}"

    def judge(self, world: Crowd) -> Judged:
        """False with the nodes that belong to another set than most."""
        components = sorted({name for recipe in self.of for name in recipe.values})
        possible = {recipe.name for recipe in self.of}
        seen: list[tuple[NodeName, ComponentName, str, frozenset[str]]] = []
        missing: list[str] = []
        for node, member in world.members:
            for component in components:
                for value in member.values(component, Layer.RUNNING):
                    named = {one.name for one in self.of if value in one.values.get(component, ())}
                    if not named:
                        missing.append(f"{component} {value} is in no published set")
                        continue
                    silent = {one.name for one in self.of if component not in one.values}
                    seen.append((node, component, value, frozenset(named | silent)))
                    possible &= named | silent
        if not seen:
            return Judged(None, missing=tuple(dict.fromkeys(missing)) or ("no firmware of a published set was read",))
        if possible:
            return Judged(None if missing else True, missing=tuple(dict.fromkeys(missing)))
        votes = Counter(name for *_, names in seen for name in names)
        best = max(votes, key=lambda name: (votes[name], name))
        odd = [(node, component, value) for node, component, value, names in seen if best not in names]
        evidence = Evidence(
            tuple(dict.fromkeys(Coordinate(component, Layer.RUNNING) for _, component, _ in odd)),
            f"what {best} names, as most of the group has",
            ", ".join(dict.fromkeys(f"{component} {value}" for _, component, value in odd)),
            nodes=tuple(dict.fromkeys(node for node, _, _ in odd if node)),
        )
        return Judged(False, (evidence,))


@dataclass(frozen=True, slots=True)
class NoReturn:
    """A step between two sets that cannot be taken: from one range down to another. Judged by `rules.of_change`."""

    of: ComponentName
    before: tuple[ordering.Range, ...]
    after: tuple[ordering.Range, ...]

    def __str__(self) -> str:
        start, end = (" or ".join(one.text for one in ranges) for ranges in (self.before, self.after))
        return f"{self.of} never goes from {start} to {end}"
