"""Who goes next: canary first, then whole NVLink domains, within the budget. Pure.

One step at a time, because what failed and what is still out of service decides
the next wave; `preview` runs the steps as if every wave succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.base import limits
from lockstep.base.names import DomainName, NodeName

__all__ = ["Candidate", "State", "next_wave", "preview", "stop_reason"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that waits for its wave."""

    name: NodeName
    domain: DomainName
    in_service: bool
    """Takes jobs until its wave takes it out: that is what the budget limits. A node that is new, fenced or NotReady
    is no further loss to anybody."""


@dataclass(frozen=True, slots=True)
class State:
    """How far a run is."""

    budget: int
    """Nodes of the pool that we may have out of service at once."""
    out: int = 0
    """Nodes of the pool that are out of service by us now: fenced, or failed in an earlier wave."""
    proven: bool = False
    """A node was brought to this lock already, so no canary is needed."""
    failed: int = 0
    """Nodes on which an act or a verify failed, or that died, in this run."""
    canary_failed: bool = False
    """The act or the verify failed on a canary: the version set, not the node, is in doubt."""


def next_wave(waiting: Sequence[Candidate], state: State) -> tuple[Candidate, ...]:
    """The nodes of the next wave, in the order given; empty when none may start now.

    Whole domains as long as they fit; a domain larger than the budget is taken in
    parts, one after the other. Nodes that are out of service already are bounded by
    the batch size alone.
    """
    room = max(state.budget - state.out, 0)
    ready = [one for one in waiting if not one.in_service or room > 0]
    if not ready:
        return ()
    if not state.proven:
        first = next((one for one in ready if not one.in_service), ready[0])
        return (first,)
    wave: list[Candidate] = []
    for domain in dict.fromkeys(one.domain for one in ready):
        members = [one for one in ready if one.domain == domain]
        taken = sum(one.in_service for one in wave)
        leaving = sum(one.in_service for one in members)
        if wave and (len(wave) + len(members) > limits.WAVE_NODES or taken + leaving > room):
            break
        wave += _fitting(members, room - taken)
        if leaving > room - taken:
            break
    return tuple(wave[: limits.WAVE_NODES])


def _fitting(members: Sequence[Candidate], room: int) -> list[Candidate]:
    fitting: list[Candidate] = []
    for one in members:
        if one.in_service:
            if room <= 0:
                continue
            room -= 1
        fitting.append(one)
    return fitting


def stop_reason(state: State, waiting: int) -> str | None:
    """Why no further wave may start; None when one may."""
    if waiting == 0:
        return None
    if state.canary_failed:
        return "the canary failed: no further wave was started"
    if state.failed > state.budget:
        return f"{state.failed} nodes failed, more than the budget of {state.budget}: no further wave was started"
    return None


def preview(waiting: Sequence[Candidate], state: State) -> tuple[tuple[NodeName, ...], ...]:
    """All waves, as if each succeeded."""
    left, waves = list(waiting), []
    while left and (wave := next_wave(left, state)):
        waves.append(tuple(one.name for one in wave))
        left = [one for one in left if one not in wave]
        state = State(state.budget, state.out, proven=True)
    return tuple(waves)
