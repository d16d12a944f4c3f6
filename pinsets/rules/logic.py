"""Truth with three values, and the words that join conditions: `all`, `any`, `not`, `not-known`.

Truth is True, False, or None for undecided. An operand that could not be read makes
a form undecided, never true or false; `all` and `any` join as Kleene's logic does,
so that what the readable operands already settle is settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from lockstep.base.names import NodeName
from pinsets.facts import Coordinate
from pinsets.rules.operands import Reading

__all__ = ["All", "Any", "Evidence", "Form", "Judged", "Not", "NotKnown", "every", "some", "undecided"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one form saw: for the finding when it does not hold."""

    places: tuple[Coordinate, ...]
    expected: str
    observed: str
    doubtful: bool = False
    nodes: tuple[NodeName, ...] = ()
    """The odd ones, in conditions of a group; empty: the node that was looked at."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A condition's truth on one node or set, with what it saw and what it could not read."""

    truth: bool | None
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()


def undecided(*readings: Reading) -> Judged:
    """Undecided for what these could not read."""
    return Judged(None, missing=tuple(one.missing for one in readings if one.missing is not None))


W_contra = TypeVar("W_contra", contravariant=True)


class Form(Protocol[W_contra]):
    """A condition over one node or set (`World`) or over a group of nodes (`groups.Crowd`)."""

    def judge(self, world: W_contra) -> Judged:
        """Its truth there."""


def every(judged: Sequence[Judged]) -> Judged:
    """Kleene's conjunction, with the evidence of what decided it."""
    if wrong := [one for one in judged if one.truth is False]:
        return Judged(False, tuple(evidence for one in wrong for evidence in one.evidence))
    if open_ := [one for one in judged if one.truth is None]:
        return Judged(None, missing=tuple(dict.fromkeys(text for one in open_ for text in one.missing)))
    return Judged(True, tuple(evidence for one in judged for evidence in one.evidence))


def some(judged: Sequence[Judged]) -> Judged:
    """Kleene's disjunction, with the evidence of what decided it."""
    if right := [one for one in judged if one.truth is True]:
        return Judged(True, tuple(evidence for one in right for evidence in one.evidence))
    if open_ := [one for one in judged if one.truth is None]:
        return Judged(None, missing=tuple(dict.fromkeys(text for one in open_ for text in one.missing)))
    merged = tuple(evidence for one in judged for evidence in one.evidence)
    return Judged(False, merged)


@dataclass(frozen=True, slots=True)
class All(Generic[W_contra]):
    """Every condition holds."""

    of: tuple[Form[W_contra], ...]

    def __str__(self) -> str:
        return _joined(self.of, "and")

    def judge(self, world: W_contra) -> Judged:
        """False if one is, undecided if one is and none is false."""
        judged = [one.judge(world) for one in self.of]
        return every(judged)


@dataclass(frozen=True, slots=True)
class Any(Generic[W_contra]):
    """At least one condition holds."""

    of: tuple[Form[W_contra], ...]

    def __str__(self) -> str:
        return _joined(self.of, "or")

    def judge(self, world: W_contra) -> Judged:
        """True if one is, undecided if one is and none is true; false says what every one of them wanted."""
        judged = some([one.judge(world) for one in self.of])
        return judged if judged.truth is not False else Judged(False, (_merged(judged.evidence, " or "),))


def _merged(evidence: Sequence[Evidence], word: str) -> Evidence:
    return Evidence(
        tuple(dict.fromkeys(place for one in evidence for place in one.places)),
        word.join(dict.fromkeys(_named(one, one.expected) for one in evidence)),
        ", ".join(dict.fromkeys(_named(one, one.observed) for one in evidence)),
        any(one.doubtful for one in evidence),
        tuple(dict.fromkeys(node for one in evidence for node in one.nodes)),
    )


def _named(one: Evidence, text: str) -> str:
    return f"{one.places[0].component} {text}" if one.places else text


@dataclass(frozen=True, slots=True)
class Not(Generic[W_contra]):
    """A condition does not hold: what must not come together."""

    of: Form[W_contra]

    def __str__(self) -> str:
        return f"not ({self.of})"

    def judge(self, world: W_contra) -> Judged:
        """Undecided where the condition is."""
        inner = self.of.judge(world)
        if inner.truth is None:
            return inner
        if not inner.truth or not inner.evidence:
            return Judged(not inner.truth, inner.evidence)
        merged = _merged(inner.evidence, " with ")
        return Judged(False, (replace(merged, expected="another combination"),))


@dataclass(frozen=True, slots=True)
class NotKnown(Generic[W_contra]):
    """A condition is not known to hold: true where it is undecided. For `applies`, to leave out proven exceptions."""

    of: Form[W_contra]

    def __str__(self) -> str:
        return f"not known: {self.of}"

    def judge(self, world: W_contra) -> Judged:
        """Never undecided."""
        inner = self.of.judge(world)
        return Judged(inner.truth is not True, inner.evidence)


def _joined(conditions: Sequence[object], word: str) -> str:
    return f" {word} ".join(f"({one})" if isinstance(one, (All, Any)) else str(one) for one in conditions)
