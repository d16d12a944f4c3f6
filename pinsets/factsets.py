"""Equal fact sets grouped, as ``collate`` does: a fleet of 100,000 nodes has few distinct ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lockstep.base.names import NodeName
from pinsets.facts import Coordinate, Fact, Snapshot, Unreadable

__all__ = ["FactSets", "Grouper", "of"]

Facts = Mapping[Coordinate, Fact]
Content = tuple[tuple[Coordinate, object], ...]


class Grouper:
    """Gives equal fact sets one number; the same object is recognised without a look inside."""

    def __init__(self) -> None:
        self._by_identity: dict[int, int] = {}
        self._by_content: dict[Content, int] = {}
        self.members: list[Facts] = []
        """Number → one of the equal sets."""
        self._alive: list[Facts] = []

    def number(self, facts: Facts) -> int:
        """The number of the group of ``facts``; sources and order of reading make no difference in what is equal."""
        known = self._by_identity.get(id(facts))
        if known is not None:
            return known
        # Identity is only a key while its owner lives.
        self._alive.append(facts)
        content = tuple([(coordinate, fact.observation) for coordinate, fact in facts.items()])
        number = self._by_content.get(content)
        if number is None:
            number = self._by_content[content] = len(self.members)
            self.members.append(facts)
        self._by_identity[id(facts)] = number
        return number


@dataclass(frozen=True, slots=True)
class FactSets:
    """Groups of nodes with equal facts."""

    groups: tuple[tuple[Facts, tuple[NodeName, ...]], ...]

    def values(self) -> dict[Coordinate, Counter[str]]:
        """Coordinate → how many nodes have which value (``absent`` is one); unreadable ones are not counted."""
        found: dict[Coordinate, Counter[str]] = {}
        for facts, names in self.groups:
            for coordinate, fact in facts.items():
                counts = found.setdefault(coordinate, Counter())
                if not isinstance(fact.observation, Unreadable):
                    counts[str(fact.observation)] += len(names)
        return found

    def nodes_with(self, coordinate: Coordinate, value: str) -> tuple[NodeName, ...]:
        """The nodes that have this value there."""
        return tuple(
            name
            for facts, names in self.groups
            if (fact := facts.get(coordinate)) is not None and str(fact.observation) == value
            for name in names
        )


def of(snapshot: Snapshot, names: Iterable[NodeName], grouper: Grouper | None = None) -> FactSets:
    """The groups of these nodes of a snapshot; all of them must be in it. ``grouper`` may know sets already."""
    known = grouper or Grouper()
    nodes: dict[int, list[NodeName]] = {}
    for name in names:
        nodes.setdefault(known.number(snapshot.nodes[name].facts), []).append(name)
    return FactSets(tuple((known.members[number], tuple(listed)) for number, listed in nodes.items()))
