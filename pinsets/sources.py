"""Several sources of facts for one node: joined into one reading, and a finding where they disagree.

The first source given counts; where a further one says something else, that is kept beside it
(`NodeFacts.others`). A source that cannot give a fact contradicts nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pinsets.deviations import Deviation, shown
from pinsets.facts import Absent, Coordinate, Fact, NodeFacts, Unreadable, Version
from pinsets.findings import Severity, Verdict
from pinsets.model import Enforce, LockedPin

__all__ = ["deviations_of", "joined"]


def joined(first: NodeFacts, second: NodeFacts) -> NodeFacts:
    """One reading of two of the same node; ``first`` counts, ``second`` fills its gaps.

    A node that only one source reached was reached. Both silent: the first one's reason stays.
    """
    if first.unreachable is not None:
        return second if second.unreachable is None else first
    if second.unreachable is not None:
        return first
    facts = dict(first.facts)
    others = list(first.others)
    for coordinate, fact in second.facts.items():
        mine = facts.get(coordinate)
        if mine is None or (isinstance(mine.observation, Unreadable) and not isinstance(fact.observation, Unreadable)):
            facts[coordinate] = fact
        elif not isinstance(fact.observation, Unreadable) and not _same(mine, fact):
            others.append(fact)
    return replace(
        first,
        observed_at=min(first.observed_at, second.observed_at),
        facts=facts,
        boot_id=first.boot_id or second.boot_id,
        serial=first.serial or second.serial,
        busy=first.busy if first.busy is not None else second.busy,
        admission=first.admission if first.admission is not None else second.admission,
        attributes={**second.attributes, **first.attributes},
        others=(*others, *second.others),
    )


def _same(one: Fact, other: Fact) -> bool:
    """Equal values; how each source wrote it makes no difference."""
    if isinstance(one.observation, Version) and isinstance(other.observation, Version):
        return one.observation.value == other.observation.value
    return isinstance(one.observation, Absent) and isinstance(other.observation, Absent)


def deviations_of(
    facts: Mapping[Coordinate, Fact], others: Sequence[Fact], pins: Mapping[Coordinate, LockedPin]
) -> tuple[Deviation, ...]:
    """One finding for each contradiction.

    Where one source says that an enforced pin is kept and another that it is not, nobody knows:
    the node is unreadable there. Everywhere else it is a warning.
    """
    found = []
    for other in others:
        mine = facts.get(other.coordinate)
        if mine is None or _same(mine, other):
            continue
        pin = pins.get(other.coordinate)
        unknown = pin is not None and pin.enforce is Enforce.BLOCK and _kept(pin, mine) != _kept(pin, other)
        found.append(
            Deviation(
                id=f"sources.{other.coordinate.component}",
                severity=Severity.BLOCK if unknown else Severity.WARN,
                verdict=Verdict.UNREADABLE if unknown else Verdict.ADMIT,
                coordinate=other.coordinate,
                expected=f"one value from every source; {mine.source} says {shown(mine.observation)}",
                observed=f"{other.source} says {shown(other.observation)}",
                cause="two sources disagree, so it is not known which is right",
                remedy="read both again; a BMC may answer from an old inventory until it is reset",
            )
        )
    return tuple(found)


def _kept(pin: LockedPin, fact: Fact) -> bool:
    return isinstance(fact.observation, Version) and pin.accepts(fact.observation.value)
