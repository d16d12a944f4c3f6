"""Requests that this fleet can never serve, even empty and healthy: refused at once, with the nearest that it can."""

from __future__ import annotations

import dataclasses
import difflib

import numpy as np

from lockstep.base import errors
from placement import assigning, candidates, gates, mig, requests
from placement.audits import Audits
from placement.gates import Mask
from placement.health.board import Board
from placement.occupancy import Occupancy
from placement.requests import Member, Need, Performance, Request
from placement.topology import WHOLE, Ints, Topology

SHARED = (Performance.TIME_SLICING, Performance.MPS, Performance.MIG)
MUCH = 1 << 40
"""More members than any node holds: what asks for nothing fits that often."""

__all__ = ["check", "members_per_node"]


def check(request: Request, topology: Topology) -> None:
    """Raises `errors.RefusedError` whose hint is the nearest feasible request."""
    if (contradiction := requests.contradiction_of(request)) is not None:
        raise errors.RefusedError(contradiction[0], place=request.name, hint=contradiction[1])
    _known(request.models, topology.models, "accelerator model", request)
    _known(request.regions, topology.regions, "region", request)
    allowed = _allowed(request, topology)
    if not allowed.any():
        raise errors.RefusedError(
            "no node has the accelerator, the region, the security boundary and the way of sharing that are asked for"
            " together",
            place=request.name,
            hint=_without_one(request, topology),
        )
    for member in request.members:
        _fits_a_node(member, request, topology, allowed)
    for member in request.members:
        _fits_together(dataclasses.replace(request, members=(member,)), topology, allowed)
    if len(request.members) > 1:
        _fits_mixed(request, topology, allowed)


def _known(asked: frozenset[str], known: tuple[str, ...], what: str, request: Request) -> None:
    strange = sorted(asked - set(known))
    if strange and not asked & set(known):
        close = difflib.get_close_matches(strange[0], known, n=1, cutoff=0.5)
        listed = ", ".join(name for name in known if name) or "none"
        hint = f"nearest: {close[0]}" if close else f"this fleet has {listed}"
        raise errors.RefusedError(f"no node has {what} {strange[0]}", place=request.name, hint=hint)


def _allowed(request: Request, topology: Topology) -> Mask:
    allowed = topology.security >= int(request.security)
    if request.models:
        allowed = allowed & np.array([model in request.models for model in topology.models])[topology.model]
    if request.regions:
        allowed = allowed & np.array([region in request.regions for region in topology.regions])[topology.region]
    if request.performance in SHARED:
        allowed = allowed & topology.modes.get(request.performance.value, np.zeros_like(allowed))
    return np.asarray(allowed, dtype=bool)


def _without_one(request: Request, topology: Topology) -> str:
    """The requests that differ in one of the four and that some node may take."""
    found = []
    weaker = _allowed(dataclasses.replace(request, security=requests.Security.PROCESS), topology)
    if weaker.any():
        strongest = int(topology.security[weaker].max())
        found.append(f"security: {next(word for word, value in requests.SECURITY.items() if value == strongest)}")
    anywhere = dataclasses.replace(request, regions=frozenset())
    on_any = dataclasses.replace(request, models=frozenset())
    for name, free, known, index in (
        ("models", on_any, topology.models, topology.model),
        ("regions", anywhere, topology.regions, topology.region),
    ):
        words = sorted({known[number] for number in index[_allowed(free, topology)].tolist()} - {""})
        if free != request and words:
            found.append(f"{name}: [{', '.join(words[:5])}]")
    for way in SHARED:
        if request.performance in SHARED and _allowed(dataclasses.replace(request, performance=way), topology).any():
            found.append(f"performance: {way}")
    return ", or ".join(found) or "drop two of models, regions, security and performance"


def _fits_a_node(member: Member, request: Request, topology: Topology, allowed: Mask) -> None:
    offers = {"gpus": topology.gpus, "cpu": topology.cpu, "memory": topology.memory, "nics": topology.nics}
    units = {"gpus": "GPUs", "cpu": "thousandths of a core", "memory": "MiB", "nics": "NICs"}
    together = allowed.copy()
    if member.one_root:
        most = int(candidates.per_root(topology.numa >= 0, topology)[allowed].max())
        if member.gpus > most:
            raise errors.RefusedError(
                f"a member asks for {member.gpus} GPUs under one root, no node that may be used has more than {most}",
                place=f"{request.name}: one_root",
                hint=f"gpus: {most} per member, or one_root: false",
            )
    for name, offer in offers.items():
        asked = getattr(member, name)
        most = int(offer[allowed].max())
        if asked > most:
            raise errors.RefusedError(
                f"a member asks for {asked} {units[name]} and no node that may be used has more than {most}",
                place=f"{request.name}: {name}",
                hint=f"{name}: {most} per member" + (", more members" if name == "gpus" else ""),
            )
        together &= offer >= asked
    if not together.any():
        raise errors.RefusedError(
            "no single node has the GPUs, CPU, memory and NICs of one member together",
            place=request.name,
            hint="smaller members, more of them",
        )


def members_per_node(request: Request, topology: Topology, allowed: Mask) -> Ints:
    """(n,) members on an empty node: exact for one kind, an upper bound for a mix."""
    member = request.least
    fits = np.full(len(topology.names), min(request.size, MUCH))
    if member.gpus:
        per_gpu = 1 if member.share == WHOLE and not member.profile else WHOLE // member.share
        if member.profile is not None:
            per_gpu = len(mig.PROFILES[member.profile].starts)
        if member.one_root and per_gpu == 1:
            held = (candidates.per_root(topology.numa >= 0, topology) // member.gpus).sum(axis=1)
        else:
            held = topology.gpus * per_gpu // member.gpus
        fits = np.minimum(fits, held)
    for offer, asked in ((topology.cpu, member.cpu), (topology.memory, member.memory), (topology.nics, member.nics)):
        if asked:
            fits = np.minimum(fits, offer // asked)
    if request.compute_domain or request.performance is requests.Performance.WHOLE_NODE:
        fits = np.minimum(fits, 1)
    return np.where(allowed, fits, 0)


def _fits_together(request: Request, topology: Topology, allowed: Mask) -> None:
    fits = members_per_node(request, topology, allowed)
    per_domain = np.bincount(topology.domain, weights=fits, minlength=len(topology.domains)).astype(np.int64)
    if request.segment > per_domain.max():
        raise errors.RefusedError(
            f"a segment of {request.segment} members is larger than any domain holds ({per_domain.max()})",
            place=f"{request.name}: segment",
            hint=f"segment: {per_domain.max()}",
        )
    whole = per_domain // request.segment * request.segment
    per_rack = np.bincount(topology.domain_rack, weights=whole, minlength=len(topology.racks)).astype(np.int64)
    most = {
        Need.SAME_DOMAIN: (int(whole.max()), "domain"),
        Need.SAME_RACK: (int(per_rack.max()), "rack"),
        Need.SPREAD: (int((per_domain > 0).sum()), "fleet, one per domain"),
        Need.ANY: (int(whole.sum()), "fleet"),
    }[request.need]
    if request.size <= most[0]:
        return
    wider = {Need.SAME_DOMAIN: Need.SAME_RACK, Need.SAME_RACK: Need.ANY, Need.SPREAD: Need.ANY}.get(request.need)
    room = {Need.SAME_RACK: int(per_rack.max()), Need.ANY: int(whole.sum()), None: 0}[wider]
    hint = f"{most[0]} members"
    if wider is not None and room >= request.size:
        hint += f", or need: {wider}"
    raise errors.RefusedError(
        f"{request.size} members asked for, the largest {most[1]} holds {most[0]} when empty",
        place=f"{request.name}: members",
        hint=hint,
    )


def _fits_mixed(request: Request, topology: Topology, allowed: Mask) -> None:
    """A gang of several kinds, tried on the empty fleet: bounds say little."""
    if _holds_mixed(request, topology, allowed):
        return
    where = {Need.SAME_DOMAIN: "domain", Need.SAME_RACK: "rack"}.get(request.need, "fleet")
    hints = [
        f"need: {wider}"
        for wider in _wider(request.need)
        if _holds_mixed(dataclasses.replace(request, need=wider), topology, allowed)
    ][:1]
    for index, member in enumerate(request.members):
        most = _most(request, index, topology, allowed)
        if most:
            hints.append(f"members[{index}]: count: {most} instead of {member.count}")
    raise errors.RefusedError(
        f"no empty {where} holds all kinds of the gang together",
        place=f"{request.name}: members",
        hint=", or ".join(hints) or "fewer members of several kinds",
    )


def _wider(need: Need) -> tuple[Need, ...]:
    return {Need.SAME_DOMAIN: (Need.SAME_RACK, Need.ANY), Need.SAME_RACK: (Need.ANY,), Need.SPREAD: (Need.ANY,)}.get(
        need, ()
    )


def _most(request: Request, index: int, topology: Topology, allowed: Mask) -> int:
    """The largest count of one kind with which the gang fits; 0 for none."""
    few, many = 0, request.members[index].count
    while many - few > 1:
        middle = (few + many) // 2
        kinds = list(request.members)
        kinds[index] = dataclasses.replace(kinds[index], count=middle)
        fits = _holds_mixed(dataclasses.replace(request, members=tuple(kinds)), topology, allowed)
        few, many = (middle, many) if fits else (few, middle)
    return few


def _holds_mixed(request: Request, topology: Topology, allowed: Mask) -> bool:
    count = len(topology.names)
    view = gates.View(
        topology,
        Occupancy(topology),
        Board(topology),
        Audits.trusted(topology),
        gates.always_fresh(topology),
        np.ones(topology.numa.shape),
    )
    if request.need in (Need.SAME_DOMAIN, Need.SAME_RACK):
        scope = topology.domain if request.need is Need.SAME_DOMAIN else topology.rack
        alike = _alike(topology, scope, allowed)
    else:
        scope, alike = np.zeros(count, dtype=np.int64), [0]
    if request.size > MUCH:
        return False
    return any(assigning.gang(view, request, (allowed & (scope == place))[:, None]) for place in alike)


def _alike(topology: Topology, scope: Ints, allowed: Mask) -> list[int]:
    """One domain or rack of each make: racks of a fleet are mostly the same."""
    columns = (topology.cpu, topology.memory, topology.gpus, topology.nics, allowed, topology.domain)
    order = np.argsort(scope, kind="stable")
    bounds = np.searchsorted(scope[order], np.arange(int(scope.max()) + 2))
    makes: dict[bytes, int] = {}
    for place in range(len(bounds) - 1):
        nodes = order[bounds[place] : bounds[place + 1]]
        rows = np.stack([np.asarray(column)[nodes].astype(np.int64) for column in columns], axis=1)
        rows[:, -1] = np.unique(rows[:, -1], return_inverse=True)[1]
        makes.setdefault(rows.tobytes(), place)
    return list(makes.values())
