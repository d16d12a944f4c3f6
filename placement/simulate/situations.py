"""What happens on a fleet, written down: events, silent nodes, hot nodes and work that runs; for `place explain`.

Everything that gates and headroom look at can be said, so that a question about a live fleet
can be asked on paper, and every answer of `explain` can be seen.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

from lockstep.base import errors
from pinsets.findings import Verdict
from placement import requests
from placement.audits import Audit
from placement.health.board import Event
from placement.planner import Planner
from placement.requests import Request
from placement.telemetry.samples import Fresh

__all__ = ["Situation", "apply", "of_report", "parse"]

LONG_AGO = "1970-01-01T00:00:00+00:00"
_FIELDS = frozenset({"events", "stale", "headroom", "running"})
_EVENT_FIELDS = frozenset({"node", "gpu", "code", "recovery"})


@dataclasses.dataclass(frozen=True, slots=True)
class Situation:
    """A fleet at one moment, beside its topology and its audit."""

    events: tuple[tuple[str, int, str, str | None], ...] = ()
    """(node, GPU or -1 for the node as a whole, code, recovery action)"""
    stale: tuple[str, ...] = ()
    """Nodes without fresh telemetry."""
    headroom: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Node → headroom of each of its GPUs, 0 to 1; others have all."""
    running: tuple[Request, ...] = ()
    """Placed in this order, by the planner that answers."""


def parse(data: Any, place: str) -> Situation:
    """``{events: [{node: n1, gpu: 0, code: xid 79}], stale: [n2], headroom: {n3: 0.1}, running: [REQUEST]}``.

    Raises `errors.InputError` that names the place.
    """
    _known(data, _FIELDS, place)
    stale, hot, running = data.get("stale", []), data.get("headroom", {}), data.get("running", [])
    if not isinstance(stale, list) or not all(isinstance(name, str) for name in stale):
        raise errors.InputError(f"`stale` is a list of node names, got {stale!r}", place=place)
    if not isinstance(hot, dict) or not all(_is_part(value) for value in hot.values()):
        raise errors.InputError(f"`headroom` is node: fraction from 0 to 1, got {hot!r}", place=place)
    events, listed = data.get("events", []), []
    if not isinstance(events, list) or not isinstance(running, list):
        raise errors.InputError("`events` and `running` are lists", place=place)
    for number, item in enumerate(running):
        if not isinstance(item, dict):
            raise errors.InputError("a running request is a mapping", place=f"{place}: running[{number}]")
        listed.append(requests.parse({"name": f"running-{number}", **item}))
    return Situation(
        tuple(_event(item, f"{place}: events[{number}]") for number, item in enumerate(events)),
        tuple(stale),
        {str(name): float(value) for name, value in hot.items()},
        tuple(listed),
    )


def _is_part(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _known(data: object, fields: frozenset[str], place: str) -> None:
    if not isinstance(data, dict):
        raise errors.InputError(f"a mapping with {', '.join(sorted(fields))}", place=place)
    if strange := sorted(set(map(str, data)) - fields):
        raise errors.InputError(
            f"unknown field `{strange[0]}`", place=place, hint=f"known: {', '.join(sorted(fields))}"
        )


def _event(item: Any, place: str) -> tuple[str, int, str, str | None]:
    _known(item, _EVENT_FIELDS, place)
    node, gpu, code, recovery = item.get("node"), item.get("gpu", -1), item.get("code"), item.get("recovery")
    if not isinstance(node, str) or not isinstance(code, str) or not isinstance(recovery, (str, type(None))):
        raise errors.InputError("`node`, `code` (`xid 79`) and `recovery` are words", place=place)
    if isinstance(gpu, bool) or not isinstance(gpu, int):
        raise errors.InputError(f"`gpu` is a GPU's index; without it the node is meant, got {gpu!r}", place=place)
    return node, gpu, code, recovery


def apply(planner: Planner, found: Situation) -> None:
    """Put the planner into it: work first, then what has happened to nodes since.

    Raises `errors.InputError` for nodes and GPUs that the fleet does not have, and
    `errors.RefusedError` for work that does not fit.
    """
    view = planner.view
    for request in found.running:
        if request.name in planner.running:
            raise errors.InputError("two running requests bear this name", place=request.name)
        decision = planner.plan(request, 0.0)
        if not decision.placed:
            raise errors.RefusedError("it cannot run already: it does not fit beside the others", place=request.name)
        planner.commit(decision)
    for name, gpu, code, recovery in found.events:
        node = view.topology.node(name)
        if not -1 <= gpu < view.topology.gpus[node]:
            raise errors.InputError(f"no GPU {gpu}: it has {view.topology.gpus[node]}", place=name)
        view.board.report(Event(node, gpu, code, 0.0, recovery))
    if found.stale:
        silent = [view.topology.node(name) for name in found.stale]
        fresh, age = view.fresh.nodes.copy(), view.fresh.sensors.copy()
        fresh[silent], age[silent] = False, np.inf
        view.fresh = Fresh(fresh, age, age, view.fresh.breaker)
    if found.headroom:
        left = view.headroom.copy()
        for name, value in found.headroom.items():
            left[view.topology.node(name)] = value
        view.set_headroom(left)


def of_report(data: Any, place: str) -> dict[str, Audit]:
    """Node → verdict, of `lockstep audit --format json`; only nodes in service that were compared with a lock.

    The lock's full digest stands for the job digest: equal locks have equal ones. Raises
    `errors.InputError` for another file.
    """
    found: dict[str, Audit] = {}
    try:
        for pool in data["pools"]:
            for node in pool["nodes"]:
                if node["in_service"] and node["lock"]:
                    lock, seen = str(node["lock"]), datetime.datetime.fromisoformat(node["observed_at"] or LONG_AGO)
                    found[str(node["name"])] = Audit(Verdict(node["verdict"]), lock, lock, seen.timestamp())
    except (KeyError, TypeError, ValueError) as error:
        raise errors.InputError(f"not a report of `lockstep audit --format json`: {error}", place=place) from error
    return found
