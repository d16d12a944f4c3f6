"""Small fleets for planner tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pinsets.findings import Verdict
from placement import audits, gates, occupancy, planner, requests, topology
from placement.health import board
from placement.telemetry import samples


class Fleet:
    """A planner over made-up NVL72 domains, and handles to what its gates look at."""

    def __init__(self, specs: list[topology.NodeSpec], *, telemetry: bool = False) -> None:
        self.topology = topology.build(specs)
        self.board = board.Board(self.topology)
        self.samples = samples.Samples(self.topology) if telemetry else None
        self.view = gates.View(
            self.topology,
            occupancy.Occupancy(self.topology),
            self.board,
            audits.Audits.trusted(self.topology),
            gates.always_fresh(self.topology),
            np.ones(self.topology.numa.shape),
        )
        self.planner = planner.Planner(self.view, self.samples)

    def audit(self, **verdicts: tuple[Verdict, str]) -> None:
        """Other verdicts and job digests for nodes (``d0_n1`` stands for ``d0-n1``)."""
        known = {name: audits.Audit(Verdict.ADMIT, "lock-a", "lock-a", 0.0) for name in self.topology.names}
        for name, (verdict, digest) in verdicts.items():
            known[name.replace("_", "-")] = audits.Audit(verdict, digest, digest, 0.0)
        self.view.audits = audits.Audits(self.topology, known)

    def place(self, now: float = 0.0, **data: Any) -> planner.Decision:
        """Plan and, if it was placed, commit."""
        decision = self.planner.plan(requests.parse({"name": "job", **data}), now)
        if decision.placed:
            self.planner.commit(decision)
        return decision

    def names(self, decision: planner.Decision) -> list[str]:
        """Node of each member, in rank order."""
        return [self.topology.names[item.node] for item in decision.members]


@pytest.fixture(scope="session")
def fleet_of() -> Callable[[list[topology.NodeSpec]], Fleet]:
    """Nodes → a fleet of exactly them."""
    return Fleet


@pytest.fixture(scope="session")
def nvl72() -> Callable[..., Fleet]:
    """(domains, nodes, **NodeSpec fields) → a fleet of domains ``d0``… with nodes ``d0-n0``…"""

    def make(domains: int = 3, nodes: int = 18, per_rack: int = 1, telemetry: bool = False, **more: Any) -> Fleet:
        specs = [
            topology.NodeSpec(
                **{
                    "name": f"d{domain}-n{node}",
                    "cpu": 144_000,
                    "memory": 960 * 1024,
                    "gpus": 4,
                    "model": "GB200",
                    "domain": f"d{domain}",
                    "rack": f"r{domain // per_rack}",
                    "nics": 4,
                    "position": node,
                    "numa": (0, 0, 1, 1),
                    **more,
                }
            )
            for domain in range(domains)
            for node in range(nodes)
        ]
        return Fleet(specs, telemetry=telemetry)

    return make
