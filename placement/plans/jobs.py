"""A plan as a piece of work of its own: what it needs, taken at one moment, so that it can be made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.plans import making, pricing
from placement.plans.kinds import Content, Kinds, Room

__all__ = ["Cache", "Job"]


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that making a plan needs; nothing here changes when the fleet does. Can be pickled."""

    kinds: Kinds
    rooms: tuple[Room, ...]
    members: tuple[tuple[int, ...], ...]
    """Per room the nodes that have it."""
    need: NDArray[np.float64]
    """(kinds,) pieces of work still to come until the fleet is full."""
    largest: Room
    """CPU and memory of the largest node, for scale."""
    models: int
    known: tuple[Content, ...] = ()
    """Open slots of an older plan."""
    rounds: int = 150
    seed: int = 0

    def make(self) -> making.Plan:
        """The plan. Takes seconds. Raises `errors.EngineError` when HiGHS fails."""
        generator = np.random.default_rng(self.seed)
        pricer = pricing.Pricer(self.kinds, self.models, self.largest.cpu, self.largest.memory, generator)
        nodes = [len(nodes) for nodes in self.members]
        return making.make(self.kinds, self.rooms, nodes, self.need, pricer, known=self.known, rounds=self.rounds)

    def key(self) -> tuple[object, ...]:
        """Equal for jobs with the same plan."""
        nodes = tuple(len(nodes) for nodes in self.members)
        return self.kinds.tasks, self.rooms, nodes, self.need.tobytes(), self.known, self.rounds, self.seed


class Cache:
    """Plans by what they were made of; an idle fleet and a known mix of work need theirs once."""

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self._plans: dict[tuple[object, ...], making.Plan] = {}

    def get(self, job: Job) -> making.Plan:
        """The plan of ``job``, made now if it is not there; see `Job.make`."""
        key = job.key()
        plan = self._plans.get(key)
        if plan is None:
            while len(self._plans) >= self._most:
                self._plans.pop(next(iter(self._plans)))
            plan = self._plans[key] = job.make()
        return plan
