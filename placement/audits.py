"""The audit's verdict on each node as placement uses it: a value, whoever delivers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinsets.findings import Verdict
from placement.topology import Ints, Topology

__all__ = ["Audit", "Audits"]


@dataclass(frozen=True, slots=True)
class Audit:
    """What the last audit said of a node."""

    verdict: Verdict
    job_digest: str
    """Digest over the pins that all nodes of one job must share."""
    lock_digest: str
    observed_at: float
    """Unix time in seconds."""


class Audits:
    """Verdicts of a fleet as arrays. Nodes without one are never in step: unknown is not ok."""

    def __init__(self, topology: Topology, audits: Mapping[str, Audit]) -> None:
        count = len(topology.names)
        digests: dict[str, int] = {}
        self.in_step: NDArray[np.bool_] = np.zeros(count, dtype=bool)
        """(n,) whether the verdict lets the node take work."""
        self.job: Ints = np.full(count, -1)
        """(n,) index of the job digest; -1 without a verdict."""
        self.observed_at: NDArray[np.float64] = np.full(count, -np.inf)
        """(n,) Unix time of the audit."""
        self._verdicts: list[Verdict | None] = [None] * count
        for index, name in enumerate(topology.names):
            audit = audits.get(name)
            if audit is not None:
                self.in_step[index] = audit.verdict.in_step
                self.job[index] = digests.setdefault(audit.job_digest, len(digests))
                self.observed_at[index] = audit.observed_at
                self._verdicts[index] = audit.verdict
        self.digests = tuple(digests)
        self.usable: list[int] = sorted({int(job) for job in self.job[self.in_step]})
        """Job digests that at least one node in step has."""
        self.mixed = len(digests) > 1 or bool((self.job < 0).any())
        """Whether nodes differ in their job digest or have none."""

    @classmethod
    def trusted(cls, topology: Topology) -> Audits:
        """Every node in step with one lock: for traces and simulations without an audit."""
        audit = Audit(Verdict.ADMIT, "simulated", "simulated", 0.0)
        return cls(topology, dict.fromkeys(topology.names, audit))

    def digest(self, node: int) -> str:
        """Job digest of a node; empty without a verdict."""
        return self.digests[self.job[node]] if self.job[node] >= 0 else ""

    def reason(self, node: int) -> str:
        """Why the verdict keeps work away, for people."""
        verdict = self._verdicts[node]
        return "never audited" if verdict is None else f"verdict {verdict}"
