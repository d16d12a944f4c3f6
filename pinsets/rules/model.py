"""A rule, and what applying rules gives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from lockstep.base.names import InstanceKind, NodeName
from pinsets.facts import Coordinate
from pinsets.findings import Severity
from pinsets.rules.groups import Crowd, NoReturn
from pinsets.rules.logic import Form
from pinsets.rules.worlds import Readable

__all__ = ["LEVELS", "Breach", "Level", "Outcome", "Rule", "Undecided"]

Level = Literal["node", "set", "domain", "pool", "change"]
LEVELS: Final[tuple[Level, ...]] = ("node", "set", "domain", "pool", "change")
"""What a rule is about: one node, a set of pins, the nodes of an NVLink domain or a pool, a step between two sets."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What fits what: an entry of a file of `pinsets/rules`."""

    id: str
    title: str
    """The rule as a sentence."""
    levels: tuple[Level, ...]
    severity: Severity
    source: str
    """Who says so."""
    remedy: str
    message: str
    """What is wrong when it is broken, and what follows from it."""
    path: str
    line: int | None
    use: str | None = None
    """Limits it to a use: ``rdma``, ``containers``, ``mig`` …"""
    doubtful: bool = False
    """The source is not certain: never more than a warning."""
    vendor: Literal["nvidia", "amd"] | None = None
    """Left aside where the accelerators are known to be another maker's; None: of every maker."""
    each: InstanceKind | None = None
    """Judged for every such instance; ``[each]`` in a coordinate stands for it."""
    applies: Form[Readable] | None = None
    """On which nodes or sets it is judged; None: on all."""
    demand: Form[Readable] | None = None
    """What must hold on a node or in a set; None for rules of a group or of a step."""
    group: Form[Crowd] | None = None
    """What must hold over the nodes of a group."""
    step: NoReturn | None = None
    """What must not be done from one set to another."""
    reports: tuple[str, ...] = ()
    """Public reports of what happens when it is broken."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that does not hold."""

    rule: Rule
    severity: Severity
    """The rule's; at most a warning where it rests on a doubtful value."""
    coordinates: tuple[Coordinate, ...]
    nodes: tuple[NodeName, ...]
    """The node, or the odd ones of a group; empty for a set of pins."""
    expected: str
    observed: str
    use: str | None
    doubtful: bool


_BEYOND: Final = re.compile(
    r": not read$| no line (?:for|of the table) |^no (?:line of the table|firmware of a published set) |"
    r" is in no published set$"
)
"""Ends of what operands and conditions say is missing where nothing failed."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A rule that could not be judged: neither held nor broken."""

    rule: Rule
    missing: tuple[str, ...]
    """What could not be read, or is in no table."""

    @property
    def tried(self) -> bool:
        """Whether somebody looked and could not read; False where no reading asked for it, or what was read is in no
        table yet.
        """
        return not all(_BEYOND.search(text) for text in self.missing)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What applying the rules to one node, group, set or step gave; rules that hold or do not apply are in neither."""

    breaches: tuple[Breach, ...] = ()
    undecided: tuple[Undecided, ...] = ()
