"""What a node or GPU must pass to be considered at all. Gates multiply: one that is shut is enough.

Each has an id and says why. Device gates do not depend on the request and are kept shut
in the state (`Gatekeeper`); request gates are asked per request, over the whole fleet at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from placement import headroom as headroom_levels
from placement.audits import Audits
from placement.headroom import AMPLE
from placement.health.board import Board
from placement.occupancy import NO_TENANT, WAYS, Occupancy
from placement.requests import SECURITY, Performance, Request, Security
from placement.telemetry.samples import Fresh, Samples
from placement.topology import Ints, Topology

__all__ = ["DEVICE_GATES", "REQUEST_GATES", "Gate", "Gatekeeper", "View"]

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class View:
    """Everything that gates look at, at one moment."""

    topology: Topology
    occupancy: Occupancy
    board: Board
    audits: Audits
    fresh: Fresh
    headroom: NDArray[np.float64]
    """(n, g) worst dimension, 0 to 1."""
    ample: bool = False
    """Whether every GPU has ample headroom: then nothing is told apart by it."""
    kept: Ints = field(init=False)
    """(n,) index in `keepers` of the waiting gang that a node is kept free for; -1: none."""
    keepers: tuple[str, ...] = ()
    levels: Ints = field(init=False)
    """(n, g) headroom levels."""
    open_nodes: Mask | None = None
    """(n,) nodes that no device gate shuts as a whole; None: all of them. Kept by `Gatekeeper`."""
    least_security: int = field(init=False)
    """The weakest boundary that any node offers."""
    _by_model: dict[frozenset[str], Mask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.set_headroom(self.headroom)
        self.kept = np.full(len(self.topology.names), -1)
        self.least_security = int(self.topology.security.min())

    def keep(self, blocks: Mapping[str, Ints]) -> None:
        """Keep exactly these nodes for these waiting gangs."""
        self.keepers = tuple(blocks)
        self.kept[:] = -1
        for index, nodes in enumerate(blocks.values()):
            self.kept[nodes] = index

    def set_headroom(self, headroom: NDArray[np.float64]) -> None:
        """New values, (n, g)."""
        self.headroom = headroom
        self.levels = headroom_levels.level(headroom)
        self.ample = bool(self.levels.min(initial=AMPLE) == AMPLE)

    def of_models(self, models: frozenset[str]) -> Mask:
        """(n,) nodes with one of these accelerators."""
        found = self._by_model.get(models)
        if found is None:
            found = np.array([model in models for model in self.topology.models])[self.topology.model]
            self._by_model[models] = found
        return found


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition."""

    id: str
    passes: Callable[[View, Request], Mask | None]
    """(n,) or (n, g); None: the request does not ask for anything here, all pass."""
    reason: Callable[[View, Request, int], str]
    """Why it is shut for a node."""


def _of_board(view: View, node: int, mask: Mask) -> str:
    gpus = [gpu for gpu in range(int(view.topology.gpus[node])) if mask[node, gpu]] or [-1]
    return "; ".join(
        filter(None, (f"gpu{gpu} {view.board.cause(node, gpu)}" if gpu >= 0 else "" for gpu in gpus))
    ) or view.board.cause(node, -1)


def _freshness(view: View, request: Request, node: int) -> str:
    fresh = view.fresh
    return f"sensors {fresh.sensors[node]:.0f} s old, health {fresh.health[node]:.0f} s old"


DEVICE_GATES: Final = (
    Gate(
        "health.device",
        lambda view, request: ~view.board.out,
        lambda view, request, node: _of_board(view, node, view.board.out),
    ),
    Gate(
        "health.node",
        lambda view, request: ~view.board.node_out,
        lambda view, request, node: view.board.cause(node, -1),
    ),
    Gate(
        "audit.verdict",
        lambda view, request: view.audits.in_step,
        lambda view, request, node: view.audits.reason(node),
    ),
    Gate("telemetry.freshness", lambda view, request: view.fresh.nodes, _freshness),
)
"""Shut for everybody alike."""


def _link(view: View, request: Request) -> Mask | None:
    if request.gpus <= 1 or not view.board.demoted:
        return None
    return ~view.board.link


def _model(view: View, request: Request) -> Mask | None:
    return view.of_models(request.models) if request.models else None


def _residency(view: View, request: Request) -> Mask | None:
    topology = view.topology
    if not request.regions:
        return None
    return np.array([region in request.regions for region in topology.regions])[topology.region]


def _tenancy(view: View, request: Request) -> Mask | None:
    occupancy = view.occupancy
    if not request.exclusive and not occupancy.restricted:
        return None
    mine = occupancy.tenant_index(request.tenant)
    alone: Mask = (occupancy.tenant == NO_TENANT) | (occupancy.tenant == mine)
    return alone if request.exclusive else alone | ~occupancy.exclusive


def _performance(view: View, request: Request) -> Mask | None:
    if request.performance is Performance.WHOLE_GPU and not view.occupancy.restricted:
        return None
    if request.performance is Performance.WHOLE_NODE:
        empty: Mask = view.occupancy.members == 0
        return empty
    free: Mask = ~view.occupancy.sole
    if request.performance is Performance.WHOLE_GPU:
        return free
    offered = view.topology.modes.get(request.performance.value)
    if offered is None:
        return np.zeros_like(free)
    free = free & offered
    mine = WAYS.get(request.performance.value, 0)
    if not mine or view.occupancy.ways[request.performance.value] == sum(view.occupancy.ways.values()):
        return free
    # A GPU is shared in one way at a time.
    same: Mask = (view.occupancy.sharing == 0) | (view.occupancy.sharing == mine)
    return free[:, None] & same


def _security(view: View, request: Request) -> Mask | None:
    if view.least_security >= int(request.security):
        return None
    offers: Mask = view.topology.security >= int(request.security)
    return offers


def _channel(view: View, request: Request) -> Mask | None:
    if not request.compute_domain:
        return None
    return ~view.occupancy.channel


def _kept(view: View, request: Request) -> Mask | None:
    if not view.keepers:
        return None
    mine = view.keepers.index(request.name) if request.name in view.keepers else -1
    others: Mask = (view.kept < 0) | (view.kept == mine)
    return others


def _security_name(value: int) -> str:
    return next((name for name, known in SECURITY.items() if known is Security(value)), str(value))


REQUEST_GATES: Final = (
    Gate(
        "health.link",
        _link,
        lambda view, request, node: _of_board(view, node, view.board.link),
    ),
    Gate(
        "model",
        _model,
        lambda view, request, node: f"accelerator {view.topology.models[view.topology.model[node]]}",
    ),
    Gate(
        "residency",
        _residency,
        lambda view, request, node: f"region {view.topology.regions[view.topology.region[node]] or 'not declared'}",
    ),
    Gate("tenancy", _tenancy, lambda view, request, node: "another tenant is there, and one of both wants to be alone"),
    Gate(
        "isolation.performance",
        _performance,
        lambda view, request, node: (
            "somebody is there" if request.performance is Performance.WHOLE_NODE else f"no {request.performance} there"
        ),
    ),
    Gate(
        "isolation.security",
        _security,
        lambda view, request, node: (
            f"offers {_security_name(int(view.topology.security[node]))} at most, "
            f"asked is {_security_name(int(request.security))}"
        ),
    ),
    Gate("compute-domain", _channel, lambda view, request, node: "its one ComputeDomain channel is taken"),
    Gate("kept", _kept, lambda view, request, node: f"kept free for {view.keepers[view.kept[node]]}, which waits"),
)
"""Asked per request."""


def device_wide(mask: Mask, topology: Topology) -> Mask:
    """A node or device mask as (n, g)."""
    return np.broadcast_to(mask[:, None] if mask.ndim == 1 else mask, topology.numa.shape)


class Gatekeeper:
    """Keeps the device gates shut in the state; asked anew when their inputs changed or time has passed."""

    def __init__(self, view: View, samples: Samples | None) -> None:
        self.view = view
        self._samples = samples
        self._seen: tuple[int, Audits, Fresh] | None = None
        """What the gates looked at last."""

    def refresh(self, now: float, *, force: bool = False) -> None:
        """Shut and open devices as of ``now``. Cheap when nothing changed and no samples are kept."""
        view = self.view
        if self._samples is not None:
            view.fresh = self._samples.fresh(now)
        elif not force and self._unchanged():
            return
        self._seen = (view.board.version, view.audits, view.fresh)
        opened = np.ones(view.topology.numa.shape, dtype=bool)
        nodes = np.ones(len(view.topology.names), dtype=bool)
        nobody = Request("nobody", ())
        for gate in DEVICE_GATES:
            passes = gate.passes(view, nobody)
            if passes is not None:
                opened &= device_wide(passes, view.topology)
                if passes.ndim == 1:
                    nodes &= passes
        # Work without a GPU has no device to be shut out by: whole nodes are shut for it too.
        view.open_nodes = None if nodes.all() else nodes
        view.occupancy.state.close(~opened)

    def _unchanged(self) -> bool:
        view = self.view
        if self._seen is None:
            return False
        version, audits, fresh = self._seen
        return version == view.board.version and audits is view.audits and fresh is view.fresh


def always_fresh(topology: Topology) -> Fresh:
    """For traces and simulations without telemetry."""
    count = len(topology.names)
    return Fresh(np.ones(count, dtype=bool), np.zeros(count), np.zeros(count), None)
