"""Why each candidate was refused or where it ranked, and what is wrong with each node: values, for tables and JSON."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from placement import candidates, gates
from placement.planner import Candidate, Decision, Planner
from placement.requests import Request

__all__ = ["Explanation", "NodeReason", "Scope", "explain"]


@dataclass(frozen=True, slots=True)
class NodeReason:
    """What the gates say of one node."""

    name: str
    room: int
    """Members that fit now, through all gates."""
    headroom: float
    """Of its worst usable GPU, 0 to 1."""
    gate: str
    """Id of the first gate that is shut, ``capacity`` when all are open and it is full; empty when it has room."""
    reason: str


@dataclass(frozen=True, slots=True)
class Scope:
    """A candidate and why."""

    candidate: Candidate
    verdict: str
    """``chosen``, ``rank N``, ``passed over`` (of a mixed gang) or ``refused``."""
    reason: str
    """What decided."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole answer."""

    request: str
    decision: Decision
    scopes: tuple[Scope, ...]
    nodes: tuple[NodeReason, ...]
    placed: tuple[tuple[int, str, tuple[int, ...]], ...]
    """(rank, node, GPUs)"""
    alarms: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "request": self.request,
            "placed": [{"rank": rank, "node": node, "gpus": list(gpus)} for rank, node, gpus in self.placed],
            "job_digest": self.decision.digest,
            "preempt_advice": list(self.decision.preempt),
            "alarms": list(self.alarms),
            "warnings": list(self.warnings),
            "candidates": [
                {**dataclasses.asdict(scope.candidate), "verdict": scope.verdict, "reason": scope.reason}
                for scope in self.scopes
            ],
            "nodes": [dataclasses.asdict(node) for node in self.nodes],
        }


def explain(planner: Planner, request: Request, now: float) -> Explanation:
    """Plan, and say why. Changes nothing. Raises as `Planner.plan` does."""
    decision = planner.plan(request, now, scores=True)
    view, topology = planner.view, planner.view.topology
    nodes = _nodes(planner, request)
    place_of: dict[str, Counter[str]] = {}
    names, scope = planner.scopes(request)
    for index, node in enumerate(nodes):
        if node.gate:
            place_of.setdefault(names[scope[index]], Counter())[node.gate] += 1
    listed = decision.candidates()
    where = names[scope[decision.members[0].node]] if decision.placed else ""
    chosen = next((candidate.place for candidate in listed if candidate.name == where), 0)
    scopes = tuple(_scope(candidate, decision, chosen, place_of.get(candidate.name)) for candidate in listed)
    placed = tuple((rank, topology.names[item.node], item.gpus) for rank, item in enumerate(decision.members))
    alarms = [f"{code} on {count} nodes within the hour" for code, count in view.board.alarms.items()]
    if view.fresh.breaker is not None:
        alarms.append(view.fresh.breaker)
    return Explanation(request.name, decision, scopes, nodes, placed, tuple(alarms), view.board.warnings())


def _scope(candidate: Candidate, decision: Decision, chosen: int, shut: Counter[str] | None) -> Scope:
    """``chosen``: rank of the candidate that was taken; better ones did not hold a mixed gang after all."""
    gates_shut = (
        ", ".join(f"{gate} on {count} nodes" for gate, count in shut.most_common()) if shut else "all gates open"
    )
    if candidate.place == 0:
        wanted = decision.request.size
        return Scope(candidate, "refused", f"room for {candidate.room} of {wanted} members: {gates_shut}")
    if candidate.place < chosen or not decision.placed:
        found = "room for each kind alone, not for all kinds together"
        return Scope(candidate, "refused" if not decision.placed else "passed over", f"{found}: {gates_shut}")
    verdict = "chosen" if candidate.place == chosen else f"rank {candidate.place}"
    score = f"headroom level {candidate.level}, fragmentation {candidate.cost}, room for {candidate.room}"
    return Scope(candidate, verdict, f"{score}; {gates_shut}")


def _nodes(planner: Planner, request: Request) -> tuple[NodeReason, ...]:
    """Per node the first shut gate; device gates shut part of a node at most, so its room decides first."""
    view, topology = planner.view, planner.view.topology
    member = max(request.members, key=lambda item: (item.gpus * item.share, item.cpu, item.memory))
    room = candidates.room(view, member, planner.passes(request))
    usable = (topology.numa >= 0) & ~view.occupancy.state.closed
    worst = np.where(usable, view.headroom, np.inf).min(axis=1)
    shut: dict[int, tuple[str, str]] = {}
    for gate in (*gates.DEVICE_GATES, *gates.REQUEST_GATES):
        passes = gate.passes(view, request)
        if passes is None:
            continue
        # A node is behind a gate when none of its devices passes it.
        closed = ~passes if passes.ndim == 1 else ~(passes & (topology.numa >= 0)).any(axis=1) & (topology.gpus > 0)
        for node in np.flatnonzero(closed & (room == 0)).tolist():
            shut.setdefault(node, (gate.id, gate.reason(view, request, node)))
    found = []
    for node, name in enumerate(topology.names):
        gate_id, reason = shut.get(node, ("", ""))
        if room[node] == 0 and not gate_id:
            gate_id, reason = "capacity", _full(planner, request, node)
        headroom = float(worst[node]) if np.isfinite(worst[node]) else 0.0
        found.append(NodeReason(name, int(room[node]), round(headroom, 3), gate_id, reason))
    return tuple(found)


def _full(planner: Planner, request: Request, node: int) -> str:
    """What is missing on a node all of whose gates are open, and which of its devices are shut."""
    view, state = planner.view, planner.view.occupancy.state
    parts = [
        f"{int(state.whole[node])} of {int(view.topology.gpus[node])} GPUs whole and free"
        + (", not enough under one root" if any(member.one_root for member in request.members) else ""),
        f"{int(state.cpu[node]) / 1000:g} cores and {int(state.memory[node])} MiB free",
    ]
    for gate in gates.DEVICE_GATES[:1]:
        if (view.board.out[node]).any():
            parts.append(gate.reason(view, request, node))
    if view.board.link[node].any() and request.gpus > 1:
        parts.append(gates.REQUEST_GATES[0].reason(view, request, node))
    return "; ".join(parts)
