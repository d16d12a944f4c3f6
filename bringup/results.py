"""What bringing a pool into step reports while it runs and at its end."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lockstep.base import errors
from lockstep.base.names import NodeName, PoolName
from pinsets.findings import Comparison

__all__ = ["Event", "Events", "NodeResult", "Outcome", "PoolResult"]


class Outcome(enum.StrEnum):
    """How one node came out."""

    IN_STEP = "in-step"
    """Nothing was to be done, and nothing was."""
    ADMITTED = "admitted"
    """New, brought up and admitted."""
    MENDED = "mended"
    """Deviated, or was on the earlier lock; in step again."""
    STAGED = "staged"
    """A spare, verified, not joined."""
    ADOPTED = "adopted"
    """In step and new to the journal; not touched."""
    FORBIDDEN = "forbidden"
    """Its kinds of disruption are not allowed."""
    BUSY = "busy"
    """Did not become vacant in time, or somebody else acts on it."""
    HELD = "held"
    """Declared in repair or held."""
    COMMON_CAUSE = "common-cause"
    """Withheld until the finding is accepted."""
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"
    UNMENDED = "unmended"
    """Deviates in something that no stage mends."""
    NOT_STARTED = "not-started"
    """Its wave was not started: failures, or no budget left."""
    FAILED = "failed"
    """An act or its verify failed, or the node died in it."""

    @property
    def exit_code(self) -> errors.ExitCode:
        """What one such node makes of a run."""
        return _EXIT_CODES.get(self, errors.ExitCode.IN_STEP)


_EXIT_CODES = {
    Outcome.FORBIDDEN: errors.ExitCode.REFUSED,
    Outcome.BUSY: errors.ExitCode.REFUSED,
    Outcome.COMMON_CAUSE: errors.ExitCode.REFUSED,
    Outcome.NOT_STARTED: errors.ExitCode.REFUSED,
    Outcome.UNREACHABLE: errors.ExitCode.NOT_MEASURED,
    Outcome.UNREADABLE: errors.ExitCode.NOT_MEASURED,
    Outcome.UNMENDED: errors.ExitCode.DRIFT,
    Outcome.FAILED: errors.ExitCode.INTERNAL,
}


@dataclass(frozen=True, slots=True)
class Event:
    """One line of progress."""

    pool: PoolName
    node: NodeName | None
    """None: the whole pool or wave."""
    stage: str | None
    text: str
    done: int | None = None
    total: int | None = None
    """Nodes of the pool that are finished, of those to be worked on; None where it does not apply."""


Events = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node's end."""

    node: NodeName
    outcome: Outcome
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolResult:
    """One pool's end."""

    pool: PoolName
    lock: str
    """Full digest of the pool's lock."""
    nodes: Mapping[NodeName, NodeResult]
    comparison: Comparison
    """Read anew for every node that was worked on."""
    notes: tuple[str, ...] = ()
    """What every report repeats: ``burnin: none``, no cluster to join, fences left alone."""

    def of(self, *outcomes: Outcome) -> tuple[NodeResult, ...]:
        """The nodes that came out so."""
        return tuple(result for result in self.nodes.values() if result.outcome in outcomes)

    @property
    def failed(self) -> tuple[NodeResult, ...]:
        """The nodes on which an act failed: these make a resource fail, the rest are warnings."""
        return self.of(Outcome.FAILED)

    @property
    def exit_code(self) -> errors.ExitCode:
        """Of this pool."""
        return errors.combine(result.outcome.exit_code for result in self.nodes.values())


def exit_code(results: Iterable[PoolResult], *, strict: bool = False) -> errors.ExitCode:
    """Of several pools."""
    codes = [node.outcome.exit_code for result in results for node in result.nodes.values()]
    return errors.combine(codes, strict=strict)
