"""The plan beside the planner: made between decisions or in the background, never inside one."""

from __future__ import annotations

import logging
import time
from concurrent import futures

import numpy as np
from numpy.typing import NDArray

from lockstep.base import errors
from placement.plans import jobs, making
from placement.policies import base, planned
from placement.tasks import Task

__all__ = ["Background", "Between"]

_LOG = logging.getLogger(__name__)


class Between:
    """Makes a plan that is due before the next decision, on the same thread: simulations stay deterministic."""

    def __init__(self, policy: planned.Planned, cache: jobs.Cache | None = None) -> None:
        self.policy = policy
        self.counts = policy.counts
        self._cache = cache or jobs.Cache(1)

    def choose(self, task: Task, among: NDArray[np.bool_] | None = None) -> base.Choice | None:
        """See `base.Policy`."""
        job = self.policy.due()
        if job is not None:
            begun = time.process_time()
            self.policy.adopt(job, self._cache.get(job))
            self.counts.seconds += time.process_time() - begun
        return self.policy.choose(task, among)

    def left(self, task: Task, choice: base.Choice) -> None:
        """See `planned.Planned.left`."""
        self.policy.left(task, choice)


class Background:
    """Has plans made by ``executor`` (a process pool leaves the planner its CPU) and takes them when they are there.

    Until the first one is there, and when none can be made, the policy is FGD.
    """

    def __init__(self, policy: planned.Planned, executor: futures.Executor) -> None:
        self.policy = policy
        self.counts = policy.counts
        self._executor = executor
        self._running: tuple[jobs.Job, futures.Future[making.Plan]] | None = None

    def choose(self, task: Task, among: NDArray[np.bool_] | None = None) -> base.Choice | None:
        """See `base.Policy`; never waits for a plan."""
        self.upkeep()
        return self.policy.choose(task, among)

    def left(self, task: Task, choice: base.Choice) -> None:
        """See `planned.Planned.left`."""
        self.policy.left(task, choice)

    def upkeep(self) -> None:
        """Take a plan that is ready, ask for one that is due."""
        if self._running is not None:
            job, future = self._running
            if not future.done():
                return
            self._running = None
            try:
                self.policy.adopt(job, future.result())
            except (errors.LockstepError, futures.BrokenExecutor) as error:
                _LOG.warning("no new plan, the old one stays: %s", error)
        job_due = self.policy.due()
        if job_due is not None:
            self._running = job_due, self._executor.submit(job_due.make)
