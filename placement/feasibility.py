"""Requests that this fleet can never serve, even empty and healthy: refused at once, with the nearest that it can."""

from __future__ import annotations

import difflib

import numpy as np

from lockstep.base import errors
from placement import mig, requests
from placement.requests import Member, Need, Request
from placement.topology import WHOLE, Ints, Topology

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
            "no node has the accelerator, the region and the security boundary that are asked for together",
            place=request.name,
            hint="drop one of models, regions and security",
        )
    for member in request.members:
        _fits_a_node(member, request, topology, allowed)
    _fits_together(request, topology, allowed)


def _known(asked: frozenset[str], known: tuple[str, ...], what: str, request: Request) -> None:
    strange = sorted(asked - set(known))
    if strange and not asked & set(known):
        close = difflib.get_close_matches(strange[0], known, n=1, cutoff=0.5)
        listed = ", ".join(name for name in known if name) or "none"
        hint = f"nearest: {close[0]}" if close else f"this fleet has {listed}"
        raise errors.RefusedError(f"no node has {what} {strange[0]}", place=request.name, hint=hint)


def _allowed(request: Request, topology: Topology) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    allowed = topology.security >= int(request.security)
    if request.models:
        allowed = allowed & np.array([model in request.models for model in topology.models])[topology.model]
    if request.regions:
        allowed = allowed & np.array([region in request.regions for region in topology.regions])[topology.region]
    return np.asarray(allowed, dtype=bool)


def _fits_a_node(
    member: Member, request: Request, topology: Topology, allowed: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> None:
    offers = {"gpus": topology.gpus, "cpu": topology.cpu, "memory": topology.memory, "nics": topology.nics}
    units = {"gpus": "GPUs", "cpu": "thousandths of a core", "memory": "MiB", "nics": "NICs"}
    together = allowed.copy()
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


def members_per_node(request: Request, topology: Topology, allowed: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """(n,) members of the smallest kind on an empty node: an upper bound for the mix."""
    member = min(request.members, key=lambda item: (item.gpus * item.share, item.cpu, item.memory))
    fits = np.full(len(topology.names), request.size)
    if member.gpus:
        per_gpu = 1 if member.share == WHOLE and not member.profile else WHOLE // member.share
        if member.profile is not None:
            per_gpu = len(mig.PROFILES[member.profile].starts)
        fits = np.minimum(fits, topology.gpus * per_gpu // member.gpus)
    for offer, asked in ((topology.cpu, member.cpu), (topology.memory, member.memory), (topology.nics, member.nics)):
        if asked:
            fits = np.minimum(fits, offer // asked)
    if request.compute_domain or request.performance is requests.Performance.WHOLE_NODE:
        fits = np.minimum(fits, 1)
    return np.where(allowed, fits, 0)


def _fits_together(request: Request, topology: Topology, allowed: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
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
