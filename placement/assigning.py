"""From a candidate to exact nodes and GPUs, in rank order along the domain."""

from __future__ import annotations

import numpy as np

from placement import candidates, mig
from placement.gates import Mask, View
from placement.headroom import level
from placement.occupancy import Placed
from placement.requests import Member, Need, Performance, Request, Security
from placement.topology import WHOLE, Ints

__all__ = ["gang", "one_per_node", "placed"]


def placed(request: Request, member: Member, node: int, gpus: tuple[int, ...], slices: int) -> Placed:
    """One member of ``request`` on ``node``."""
    return Placed(
        node=node,
        gpus=gpus,
        share=member.share if member.gpus else 0,
        cpu=member.cpu,
        memory=member.memory,
        nics=member.nics,
        slices=slices,
        channel=request.compute_domain,
        tenant=request.tenant,
        exclusive=request.exclusive,
        sole=request.performance is Performance.WHOLE_NODE,
        vm=request.security >= Security.VM,
        sharing=request.performance.value if member.gpus and member.share < WHOLE and not slices else "",
    )


def one_per_node(request: Request) -> bool:
    """Whether the node, or its one channel, is not shared even within the gang."""
    return request.performance is Performance.WHOLE_NODE or request.compute_domain


def gang(view: View, request: Request, opened: Mask, cool: Mask | None = None) -> tuple[Placed, ...]:
    """All members on devices of ``opened`` (n, g), or nothing. Members with GPUs on those of ``cool`` (n, g) only.

    Kinds are placed largest first. Nothing is left taken: the occupancy is only tried on.
    """
    occupancy = view.occupancy
    found: list[Placed] = []
    kinds = sorted(request.members, key=lambda member: (-member.gpus * member.share, -member.cpu, -member.memory))
    used: set[int] = set()
    try:
        for member in kinds:
            usable = opened if cool is None or not member.gpus else opened & cool
            fits = candidates.room(view, member, usable)
            if one_per_node(request):
                fits = np.minimum(fits, 1)
                fits[list(used)] = 0
            order = _nodes(view, request, fits, member.count, used)
            if len(order) < member.count:
                return ()
            for node in order:
                item = _on_node(view, request, member, node, usable)
                occupancy.take(item)
                found.append(item)
                used.add(node)
    finally:
        for item in found:
            occupancy.give(item)
    position = view.topology.position
    return tuple(sorted(found, key=lambda item: (view.topology.domain[item.node], position[item.node], item.node)))


def _nodes(view: View, request: Request, fits: Ints, count: int, used: set[int]) -> list[int]:
    """A node per member: domains first, then nodes inside each."""
    topology = view.topology
    per_domain = np.bincount(topology.domain, weights=fits, minlength=len(topology.domains)).astype(np.int64)
    shares = _domains(request, per_domain, count, {int(topology.domain[node]) for node in used})
    order: list[int] = []
    for domain, members in shares:
        nodes = topology.domain_nodes[domain]
        nodes = nodes[fits[nodes] > 0]
        # Tightest node first keeps whole nodes whole; along the domain among equals.
        nodes = nodes[np.lexsort((topology.position[nodes], view.board.history[nodes], fits[nodes]))]
        left = members
        for node in nodes.tolist():
            here = min(int(fits[node]), left)
            order += [node] * here
            left -= here
            if left == 0:
                break
    return order


def _domains(request: Request, per_domain: Ints, count: int, used: set[int]) -> list[tuple[int, int]]:
    """(domain, members) in whole segments: the tightest one that holds all, else the largest ones, the last tight."""
    segment = request.segment
    if request.need is Need.SPREAD:
        free = [domain for domain in np.argsort(per_domain, kind="stable").tolist() if per_domain[domain] > 0]
        return [(domain, 1) for domain in free if domain not in used][:count]
    whole = per_domain // segment * segment
    left = -(-count // segment) * segment
    shares: list[tuple[int, int]] = []
    members = count
    while left > 0:
        enough = np.flatnonzero(whole >= left)
        if len(enough):
            cost = candidates.fragmentation(per_domain[enough], left)
            domain = int(enough[np.lexsort((per_domain[enough], cost))[0]])
        else:
            domain = int(whole.argmax())
        here = min(int(whole[domain]), left)
        if here <= 0:
            return []
        shares.append((domain, min(here, members)))
        members -= min(here, members)
        left -= here
        whole[domain] = 0
    return shares


def _on_node(view: View, request: Request, member: Member, node: int, opened: Mask) -> Placed:
    """Exact GPUs on a node that has room for the member."""
    occupancy, state = view.occupancy, view.occupancy.state
    if not member.gpus:
        return placed(request, member, node, (), 0)
    if member.profile is not None:
        return _instance(view, request, member, node, opened)
    row = state.gpu[node]
    if occupancy.mig or opened.shape[1] > 1:
        row = np.where(opened[node] & (occupancy.slices[node] == 0), row, 0)
    if view.board.demoted:
        # A GPU with a failing link is the last that work on a single GPU gets.
        sound = np.where(view.board.link[node], 0, row)
        row = sound if (sound >= member.share).sum() >= member.gpus else row
    if member.share < WHOLE:
        gpu = int(np.where(row >= member.share, row, WHOLE + 1).argmin())
        return placed(request, member, node, (gpu,), 0)
    free = np.flatnonzero(row == WHOLE)
    if len(free) == member.gpus:
        return placed(request, member, node, tuple(free.tolist()), 0)
    levels = level(view.headroom[node, free])
    numa = view.topology.numa[node, free]
    groups = {int(root): int((numa == root).sum()) for root in np.unique(numa)}
    # GPUs under one PCIe root that just holds the member, else those with most headroom.
    fitting = [root for root, size in groups.items() if size >= member.gpus]
    home = min(fitting, key=lambda root: (groups[root], root), default=-1)
    order = np.lexsort((free, -levels, numa != home))
    return placed(request, member, node, tuple(sorted(free[order][: member.gpus].tolist())), 0)


def _instance(view: View, request: Request, member: Member, node: int, opened: Mask) -> Placed:
    """A MIG instance on the GPU with most slices taken that still has a place for it."""
    state, slices = view.occupancy.state, view.occupancy.slices
    assert member.profile is not None  # noqa: S101 - the caller has asked
    best: tuple[int, int, int] | None = None
    usable = np.broadcast_to(opened[node], state.gpu[node].shape) & ~state.closed[node]
    for gpu in np.flatnonzero(usable & (view.topology.numa[node] >= 0)).tolist():
        taken = int(slices[node, gpu])
        if not taken and state.gpu[node, gpu] != WHOLE:
            continue
        mask = mig.fit(taken, member.profile)
        if mask is not None and (best is None or (-taken.bit_count(), gpu) < best[:2]):
            best = (-taken.bit_count(), gpu, mask)
    assert best is not None  # noqa: S101 - the node has room
    return placed(request, member, node, (best[1],), best[2])
