"""Where a gang could stand: room per node, then every domain or rack with its score.

Scores are compared in order, never added: headroom level first, then what the placement
would fragment, then the tighter fit, then failure history, then the name's place.
"""

from __future__ import annotations

import numpy as np

from placement import mig
from placement.gates import Mask, View
from placement.requests import Member
from placement.topology import WHOLE, Ints, Topology

__all__ = ["SEGMENTS", "fragmentation", "per_root", "room"]

SEGMENTS = (16, 8, 4, 2)
"""Blocks that others will ask for: NVL72 advice for segments (16, 4) and their halves."""
MUCH = 1_000_000


def room(view: View, member: Member, passes: Mask) -> Ints:
    """(n,) members of one kind that fit on each node; ``passes`` (n, g), or (n, 1) for whole nodes, are open to it."""
    state = view.occupancy.state
    fits: Ints = np.full(len(state.cpu), MUCH)
    for free, need in ((state.cpu, member.cpu), (state.memory, member.memory), (state.nics, member.nics)):
        if need:
            fits = np.minimum(fits, free // need)
    if not member.gpus:
        return np.where(passes.any(axis=1), fits, 0)
    alike = passes.shape[1] == 1 and not view.occupancy.mig and not member.one_root
    if member.share == WHOLE and member.profile is None and alike:
        return np.where(passes[:, 0], np.minimum(fits, state.whole // member.gpus), 0)
    gpu = np.where(passes, state.gpu, 0)
    if member.profile is not None:
        return np.asarray(np.minimum(fits, _instances(view, member.profile, passes)))
    # A GPU in MIG mode is shared by profile only.
    gpu = np.where(view.occupancy.slices > 0, 0, gpu)
    if member.share == WHOLE:
        whole = per_root(gpu == WHOLE, view.topology) if member.one_root else (gpu == WHOLE).sum(axis=1, keepdims=True)
        return np.asarray(np.minimum(fits, (whole // member.gpus).sum(axis=1)))
    return np.asarray(np.minimum(fits, (gpu // member.share).sum(axis=1)))


def per_root(devices: Mask, topology: Topology) -> Ints:
    """(n, r) how many of ``devices`` (n, g) are under each NUMA node."""
    roots = np.unique(topology.numa[topology.numa >= 0])
    return np.stack([(devices & (topology.numa == root)).sum(axis=1) for root in roots.tolist() or [0]], axis=1)


def _instances(view: View, profile: str, passes: Mask) -> Ints:
    """(n,) how many instances of a MIG profile fit, packed by `mig.fit`."""
    state, slices = view.occupancy.state, view.occupancy.slices
    usable = passes & ~state.closed & ((slices > 0) | (state.gpu == WHOLE))
    table = np.zeros(256, dtype=np.int64)
    for taken in np.unique(slices[usable]).tolist():
        mask, count = int(taken), 0
        while (place := mig.fit(mask, profile)) is not None:
            mask |= place
            count += 1
        table[taken] = count
    found: Ints = np.where(usable, table[slices], 0).sum(axis=1)
    return found


def fragmentation(free: Ints, taken: Ints | int) -> Ints:
    """(m,) blocks that others lose when ``taken`` of ``free`` members' room goes: large blocks before small ones."""
    cost = np.zeros(len(free), dtype=np.int64)
    for size in SEGMENTS:
        cost = cost * 100 + np.minimum(free // size - (free - taken) // size, 99)
    return cost
