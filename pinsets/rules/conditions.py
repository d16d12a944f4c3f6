"""The closed list of forms that a condition of one node or one set can have. Nothing in a rule is code.

How they are joined, and what undecided means: `pinsets.rules.logic`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pinsets.rules import ordering
from pinsets.rules.logic import Evidence, Judged, undecided
from pinsets.rules.operands import Operand, Reading, World, short

__all__ = ["Equal", "Line", "OneOf", "Order", "Present", "Single", "Symbols", "Table", "Within", "Words", "has_words"]


@dataclass(frozen=True, slots=True)
class Within:
    """A version lies in one of the ranges, and is none of the exceptions. With ``inside`` False: in none of them.

    Absent lies in no range and is nothing to forbid: it holds, since `present` asks
    for that; with ``needed`` (the form ``is``) it does not.
    """

    of: Operand
    ranges: tuple[ordering.Range, ...]
    excluded: tuple[ordering.Range, ...] = ()
    inside: bool = True
    needed: bool = False

    def __str__(self) -> str:
        words = " or ".join(f"`{one.text}`" for one in self.ranges)
        but = f" but {', '.join(f'`{one.text}`' for one in self.excluded)}" if self.excluded else ""
        return f"{self.of} is {'in' if self.inside else 'not in'} {words}{but}"

    def judge(self, world: World) -> Judged:
        """Undecided for what cannot be read, or has no order."""
        seen = self.of.read(world)
        if seen.missing is not None:
            return undecided(seen)
        if seen.value is None:
            return Judged(not self.needed, (Evidence(seen.places, self._expected(), "absent"),))
        holds = [one.holds(seen.order, seen.value) for one in self.ranges]
        left_out = [one.holds(seen.order, seen.value) for one in self.excluded]
        found = True if True in holds else None if None in holds else False
        if True in left_out:
            found = False
        elif found and None in left_out:
            found = None
        if found is None:
            return Judged(None, missing=(f"{self.of}: {seen.value!r} has no place in an order",))
        evidence = Evidence(seen.places, self._expected(), seen.value, seen.doubtful)
        return Judged(found is self.inside, (evidence,))

    def _expected(self) -> str:
        words = " or ".join(one.text for one in self.ranges)
        but = f", not {', '.join(one.text for one in self.excluded)}" if self.excluded else ""
        return f"{'' if self.inside else 'not '}{words}{but}"


def _called(first: Operand, reading: Reading) -> str:
    """The reference by the coordinate that was read, else in few words."""
    return str(reading.places[0]) if reading.places else short(first)


@dataclass(frozen=True, slots=True)
class Equal:
    """All operands that are there are one text, in all digits."""

    of: tuple[Operand, ...]

    def __str__(self) -> str:
        return " = ".join(str(one) for one in self.of)

    def judge(self, world: World) -> Judged:
        """The first operand that is there is what the others are held against."""
        readings = [(operand, operand.read(world)) for operand in self.of]
        there = [(operand, reading) for operand, reading in readings if reading.value is not None]
        missing = undecided(*(reading for _, reading in readings))
        if not there:
            return missing if missing.missing else Judged(True)
        (first, reference), *others = there
        odd = tuple(
            Evidence(
                (*reading.places, *reference.places),
                f"{reference.value}, as {_called(first, reference)}",
                str(reading.value),
                reading.doubtful or reference.doubtful,
            )
            for operand, reading in others
            if reading.value != reference.value
        )
        if odd:
            return Judged(False, odd)
        return missing if missing.missing else Judged(True)


@dataclass(frozen=True, slots=True)
class Order:
    """One operand stands in a relation to another: ``>=``, ``<=``, ``>``, ``<``."""

    of: Operand
    relation: str
    to: Operand

    def __str__(self) -> str:
        return f"{self.of} {self.relation} {self.to}"

    def judge(self, world: World) -> Judged:
        """Undecided where one of them cannot be read or ordered; true where one is absent."""
        left, right = self.of.read(world), self.to.read(world)
        if left.missing is not None or right.missing is not None:
            return undecided(left, right)
        if left.value is None or right.value is None:
            return Judged(True)
        range_ = ordering.Range(self.relation, ((self.relation, right.value),))
        truth = range_.holds(left.order, left.value)
        if truth is None:
            return Judged(None, missing=(f"{self.of} {left.value!r} and {right.value!r} have no order",))
        evidence = Evidence(
            (*left.places, *right.places),
            f"{self.relation} {right.value} ({short(self.to)})",
            left.value,
            left.doubtful or right.doubtful,
        )
        return Judged(truth, (evidence,))


@dataclass(frozen=True, slots=True)
class OneOf:
    """A value is one of a short list, as text."""

    of: Operand
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.of} is {' or '.join(self.values)}"

    def judge(self, world: World) -> Judged:
        """Absent is none of them."""
        seen = self.of.read(world)
        if seen.missing is not None:
            return undecided(seen)
        found = seen.value is not None and seen.value.casefold() in {value.casefold() for value in self.values}
        return Judged(found, (Evidence(seen.places, " or ".join(self.values), str(seen), seen.doubtful),))


def has_words(text: str, phrase: str) -> bool:
    """Whether the words of ``phrase`` follow one another in ``text``; ``GH200`` does not hold ``H200``."""
    have, want = (re.findall(r"[0-9a-z.]+", part.lower()) for part in (text, phrase))
    return any(have[start : start + len(want)] == want for start in range(len(have) - len(want) + 1))


@dataclass(frozen=True, slots=True)
class Words:
    """A text, such as a product's name, holds one of the phrases as whole words."""

    of: Operand
    phrases: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.of} names {' or '.join(self.phrases)}"

    def judge(self, world: World) -> Judged:
        """Absent names nothing."""
        seen = self.of.read(world)
        if seen.missing is not None:
            return undecided(seen)
        found = seen.value is not None and any(has_words(seen.value, phrase) for phrase in self.phrases)
        return Judged(found, (Evidence(seen.places, " or ".join(self.phrases), str(seen), seen.doubtful),))


@dataclass(frozen=True, slots=True)
class Present:
    """Something is there, or with ``there`` False is not."""

    of: Operand
    there: bool = True

    def __str__(self) -> str:
        return f"{self.of} is {'present' if self.there else 'absent'}"

    def judge(self, world: World) -> Judged:
        """Absent is a value: only what could not be read is undecided."""
        seen = self.of.read(world)
        if seen.missing is not None:
            return undecided(seen)
        evidence = Evidence(seen.places, "present" if self.there else "absent", str(seen), seen.doubtful)
        return Judged((seen.value is not None) is self.there, (evidence,))


@dataclass(frozen=True, slots=True)
class Single:
    """A comma-separated list names one thing only."""

    of: Operand

    def __str__(self) -> str:
        return f"{self.of} holds one value"

    def judge(self, world: World) -> Judged:
        """True for an empty list."""
        seen = self.of.read(world)
        if seen.missing is not None:
            return undecided(seen)
        values = sorted({part.strip() for part in (seen.value or "").split(",") if part.strip()})
        return Judged(len(values) < 2, (Evidence(seen.places, "one value", ", ".join(values)),))


@dataclass(frozen=True, slots=True)
class Symbols:
    """What a binary asks of others (``EFA_1.4``) is offered: the same name with that number or a higher one."""

    needed: Operand
    offered: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"{self.needed} offered by {' and '.join(str(one) for one in self.offered)}"

    def judge(self, world: World) -> Judged:
        """False where nobody offers a name; undecided where that may lie in what could not be read."""
        needed = self.needed.read(world)
        if needed.missing is not None:
            return undecided(needed)
        offers = [one.read(world) for one in self.offered]
        have: dict[str, ordering.Key] = {}
        for name, number in (pair for one in offers for pair in _symbols(one.value)):
            have[name] = max(number, have.get(name, number))
        asked = _symbols(needed.value)
        lacking = [
            f"{name}_{'.'.join(map(str, number[0]))}"
            for name, number in asked
            if name not in have or have[name] < number
        ]
        too_old = any(name in have and have[name] < number for name, number in asked)
        if lacking and not too_old and (open_ := undecided(*offers)).missing:
            # A library offers names of its own only: it may be the one that was not read.
            return open_
        observed = ", ".join(one.value for one in offers if one.value) or "nothing"
        return Judged(not lacking, (Evidence(needed.places, ", ".join(lacking) or str(needed), observed),))


def _symbols(text: str | None) -> list[tuple[str, ordering.Key]]:
    """``FABRIC_1.7,EFA_1.3`` → names with the key of their number."""
    found = []
    for part in re.split(r"[\s,;]+", text or ""):
        name, _, number = part.rpartition("_")
        key = ordering.key(ordering.DOTTED, number)
        if name and key is not None:
            found.append((name, key))
    return found


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table: where every cell of ``when`` holds, the operand looked at must lie in ``then``."""

    when: tuple[tuple[ordering.Range, ...] | str, ...]
    """Per key its ranges, or a phrase that a text must name."""
    then: tuple[ordering.Range, ...]
    doubtful: bool = False

    def holds(self, keys: Sequence[Reading]) -> bool:
        """Whether this line is about these keys."""
        for cell, seen in zip(self.when, keys, strict=True):
            if seen.value is None:
                return False
            if isinstance(cell, str):
                if not has_words(seen.value, cell):
                    return False
            elif not any(one.holds(seen.order, seen.value) for one in cell):
                return False
        return True

    def __str__(self) -> str:
        cells = [cell if isinstance(cell, str) else " or ".join(one.text for one in cell) for cell in self.when]
        return f"{', '.join(cells)} → {' or '.join(one.text for one in self.then)}{' (?)' if self.doubtful else ''}"


@dataclass(frozen=True, slots=True)
class Table:
    """The first line about the keys says in which ranges another operand must lie."""

    keys: tuple[Operand, ...]
    look: Operand
    lines: tuple[Line, ...]
    otherwise: bool | None = None
    """Truth for keys that no line is about: None, undecided."""

    def __str__(self) -> str:
        return f"{self.look} as the table says for {' and '.join(str(one) for one in self.keys)}"

    def judge(self, world: World) -> Judged:
        """Undecided for what cannot be read; true where the operand looked at is absent."""
        keys = [one.read(world) for one in self.keys]
        seen = self.look.read(world)
        if any(one.missing is not None for one in (*keys, seen)):
            return undecided(*keys, seen)
        if seen.value is None or any(one.value is None for one in keys):
            return Judged(True)
        named = " and ".join(f"{short(operand)} {one.value}" for operand, one in zip(self.keys, keys, strict=True))
        places = (*seen.places, *(place for one in keys for place in one.places))
        line = next((line for line in self.lines if line.holds(keys)), None)
        if line is None:
            if self.otherwise is None:
                return Judged(None, missing=(f"no line of the table is about {named}",))
            return Judged(self.otherwise, (Evidence(places, f"a line of the table for {named}", seen.value),))
        holds = [one.holds(seen.order, seen.value) for one in line.then]
        if True not in holds and None in holds:
            return Judged(None, missing=(f"{self.look}: {seen.value!r} has no place in an order",))
        doubtful = line.doubtful or seen.doubtful or any(one.doubtful for one in keys)
        expected = f"{' or '.join(one.text for one in line.then)} with {named}"
        return Judged(True in holds, (Evidence(places, expected, seen.value, doubtful),))
