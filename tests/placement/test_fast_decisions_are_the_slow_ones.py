"""A single member is decided on a short way: it must say what the long one says, whatever the fleet looks like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.base import errors
from pinsets.findings import Verdict
from placement import audits, feasibility, gates, planner, requests
from placement.health.board import Event
from placement.policies import base, beside, fgd, planned, rivals
from placement.state import State
from placement.tasks import Task, Workload
from placement.topology import NodeSpec

WORK = Workload.counted({Task(4000, 1024, 1, 1000): 3, Task(2000, 512, 1, 400): 2, Task(8000, 0, 0, 0): 1})

POLICIES: dict[str, Callable[[State], base.Policy]] = {
    "best-fit": lambda state: rivals.RIVALS["best-fit"](state, _rank(state), np.random.default_rng(0)),
    "fgd": lambda state: fgd.Fgd(state, WORK, _rank(state)),
    "planned": lambda state: beside.Between(planned.Planned(state, WORK, _rank(state))),
}

_NODE = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from([0, 4000, 16_000]),
        "memory": st.sampled_from([2048, 8192]),
        "gpus": st.integers(0, 4),
        "model": st.sampled_from(["A", "B"]),
        "domain": st.sampled_from(["x", "y", "z"]),
        "nics": st.integers(0, 2),
        "region": st.sampled_from(["north", "south"]),
        "security": st.sampled_from([1, 2]),
        "modes": st.sampled_from([frozenset({"time-slicing", "mig"}), frozenset({"mig"})]),
    }
)
_MEMBER = st.one_of(
    st.fixed_dictionaries({"gpus": st.integers(0, 4), "nics": st.integers(0, 2), "one_root": st.booleans()}),
    st.fixed_dictionaries({"gpus": st.just(1), "share": st.sampled_from([0.2, 0.4, 0.9])}),
    st.fixed_dictionaries({"gpus": st.just(1), "profile": st.sampled_from(["1g", "3g"])}),
)
_ASK = st.fixed_dictionaries(
    {"member": _MEMBER, "cpu": st.sampled_from([0, 2, 4]), "memory": st.sampled_from([0, "512MiB", "2GiB"])},
    optional={
        "models": st.sampled_from([["A"], ["B"], ["A", "B"]]),
        "regions": st.sampled_from([["north"], ["south"]]),
        "need": st.sampled_from(["any", "same-domain", "same-rack", "spread"]),
        "tenant": st.sampled_from(["t", "u"]),
        "exclusive": st.booleans(),
        "performance": st.sampled_from(["whole-node", "whole-gpu"]),
        "security": st.sampled_from(["container", "vm"]),
        "compute_domain": st.booleans(),
    },
)
_HAPPENS = st.one_of(
    _ASK,
    st.tuples(st.just("event"), st.integers(0, 7), st.integers(-1, 3), st.sampled_from(["xid 79", "xid 74", "xid 54"])),
    st.tuples(st.just("hot"), st.integers(0, 7), st.integers(0, 3), st.sampled_from([0.02, 0.15, 1.0])),
    st.tuples(st.just("drifted"), st.integers(0, 7)),
    st.tuples(st.just("other lock"), st.integers(0, 7)),
    st.tuples(st.just("kept"), st.integers(0, 7)),
    st.tuples(st.just("ends"), st.integers(0, 30)),
)


def _rank(state: State) -> Any:
    return np.random.default_rng(1).permutation(len(state.cpu))


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=40, deadline=None)
@given(nodes=st.lists(_NODE, min_size=1, max_size=8), story=st.lists(_HAPPENS, min_size=1, max_size=25))
def test_a_fast_verdict_is_that_of_the_explained_one_and_of_a_planner_without_policy(
    fleet_of: Any, policy: str, nodes: list[dict[str, Any]], story: list[Any]
) -> None:
    specs = [NodeSpec(f"n{number}", position=number, **node) for number, node in enumerate(nodes)]
    fast, explained, plain = (fleet_of(specs) for _ in range(3))
    for fleet in (fast, explained):
        fleet.planner.policy = POLICIES[policy](fleet.view.occupancy.state)
    verdicts: dict[str, audits.Audit] = {}
    for number, what in enumerate(story):
        if not isinstance(what, dict):
            for fleet in (fast, explained, plain):
                _happen(fleet, what, verdicts)
            continue
        request = _request(f"j{number}", what, fast)
        if request is None:
            continue
        said = fast.planner.plan(request, float(number))
        told = explained.planner.plan(request, float(number), scores=True)
        assert said.placed == told.placed == plain.planner.plan(request, float(number)).placed
        if said.placed:
            # The occupancy itself refuses what is not free; the gates are asked about what was taken.
            _passes_every_gate(fast, request, said)
            _passes_every_gate(explained, request, told)
            for fleet in (fast, explained, plain):
                fleet.planner.commit(said)


def _request(name: str, what: dict[str, Any], fleet: Any) -> requests.Request | None:
    """The request; None for one that contradicts itself or is impossible here: such are refused before any way."""
    rest = {key: value for key, value in what.items() if key not in ("member", "cpu", "memory")}
    member = {**what["member"], "cpu": what["cpu"], "memory": what["memory"]}
    if "share" in member or "profile" in member:
        rest.pop("performance", None)
    try:
        request = requests.parse({"name": name, "members": [member], **rest})
        feasibility.check(request, fleet.topology)
    except errors.LockstepError:
        return None
    return request


def _happen(fleet: Any, what: tuple[Any, ...], verdicts: dict[str, audits.Audit]) -> None:
    kind, where = what[0], what[1]
    node = where % len(fleet.topology.names)
    gpus = int(fleet.topology.gpus[node])
    if kind == "event" and what[2] < gpus:
        fleet.board.report(Event(node, what[2], what[3], 0.0))
    elif kind == "hot" and gpus:
        headroom = fleet.view.headroom.copy()
        headroom[node, what[2] % gpus] = what[3]
        fleet.view.set_headroom(headroom)
    elif kind in ("drifted", "other lock"):
        verdicts[fleet.topology.names[node]] = audits.Audit(
            Verdict.DRIFTED if kind == "drifted" else Verdict.ADMIT, "lock-b", "lock-b", 0.0
        )
        trusted = audits.Audit(Verdict.ADMIT, "lock-a", "lock-a", 0.0)
        fleet.view.audits = audits.Audits(fleet.topology, dict.fromkeys(fleet.topology.names, trusted) | verdicts)
        fleet.board.version += 1
    elif kind == "kept":
        fleet.view.keep({"waiting": np.array([node])})
    elif kind == "ends" and fleet.planner.running:
        fleet.planner.release(sorted(fleet.planner.running)[where % len(fleet.planner.running)])


def _passes_every_gate(fleet: Any, request: requests.Request, decision: planner.Decision) -> None:
    """Every gate alone, asked about each device taken."""
    view = fleet.view
    for item in decision.members:
        for gate in (*gates.DEVICE_GATES, *gates.REQUEST_GATES):
            passes = gate.passes(view, request)
            if passes is not None:
                open_here = passes[item.node] if passes.ndim == 1 else passes[item.node][list(item.gpus)]
                assert np.all(open_here), gate.id
        assert view.audits.digests[view.audits.job[item.node]] == decision.digest
        fleet.view.occupancy.take(item)
        fleet.view.occupancy.give(item)
