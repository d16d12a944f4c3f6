"""What is asked for: a gang of members with devices, topology need, tenancy, isolation and residency."""

from __future__ import annotations

import enum
import fractions
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lockstep.base import errors
from placement import mig
from placement.tasks import Task
from placement.topology import WHOLE

__all__ = ["Member", "Need", "Performance", "Request", "Security", "of_task", "parse"]


class Need(enum.StrEnum):
    """How close the members must be."""

    ANY = "any"
    SAME_DOMAIN = "same-domain"
    SAME_RACK = "same-rack"
    SPREAD = "spread"
    """No two members in one domain."""


class Performance(enum.StrEnum):
    """What may share the device, for speed; says nothing about security."""

    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"
    WHOLE_GPU = "whole-gpu"
    WHOLE_NODE = "whole-node"


class Security(enum.IntEnum):
    """The boundary around the work, weakest first; a partition of a GPU is none of them."""

    PROCESS = 0
    CONTAINER = 1
    VM = 2
    CONFIDENTIAL_VM = 3


SECURITY: Final = {
    "process": Security.PROCESS,
    "container": Security.CONTAINER,
    "vm": Security.VM,
    "confidential-vm": Security.CONFIDENTIAL_VM,
}
"""As requests write them."""


@dataclass(frozen=True, slots=True)
class Member:
    """One kind of member and how many of it."""

    gpus: int
    count: int = 1
    """Members of this kind."""
    share: int = WHOLE
    """Thousandths of each GPU; below 1000 only with one GPU."""
    profile: str | None = None
    """MIG profile such as ``3g``; then ``share`` is what accounting charges."""
    cpu: int = 0
    """Thousandths of a core."""
    memory: int = 0
    """MiB."""
    nics: int = 0
    one_root: bool = False
    """All its GPUs under one NUMA node (PCIe root); without it that is a wish."""


@dataclass(frozen=True, slots=True)
class Request:
    """A gang: all of it or nothing of it."""

    name: str
    members: tuple[Member, ...]
    models: frozenset[str] = frozenset()
    """Accelerator models allowed; empty: any."""
    need: Need = Need.ANY
    segment: int = 1
    """Nodes that must stand in one domain together; the gang may span domains between segments."""
    tenant: str = ""
    exclusive: bool = False
    """No other tenant on the nodes used."""
    performance: Performance = Performance.WHOLE_GPU
    security: Security = Security.CONTAINER
    regions: frozenset[str] = frozenset()
    """Residency labels allowed; empty: any."""
    compute_domain: bool = False
    """Takes the one ComputeDomain channel of each of its nodes."""
    priority: int = 0
    """Higher may be advised to displace lower; nothing is ever displaced by the planner."""

    @property
    def size(self) -> int:
        """Members in all."""
        return sum(member.count for member in self.members)

    @property
    def least(self) -> Member:
        """Asks of everything the least that any kind asks: as many of it fit as members of the gang, or more."""
        first, *others = self.members
        if not others:
            return first
        # MIG instances and other parts of a GPU are not comparable.
        gpus = 0 if any(member.profile for member in self.members) else min(member.gpus for member in self.members)
        return Member(
            gpus=gpus,
            share=min(member.share for member in self.members) if gpus else 0,
            cpu=min(member.cpu for member in self.members),
            memory=min(member.memory for member in self.members),
            nics=min(member.nics for member in self.members),
            one_root=all(member.one_root for member in self.members),
        )

    @property
    def gpus(self) -> int:
        """GPUs, whole or part, in all."""
        return sum(member.count * member.gpus for member in self.members)


E = TypeVar("E", bound=enum.StrEnum)

_FIELDS = frozenset(
    {
        "name",
        "members",
        "models",
        "need",
        "segment",
        "tenant",
        "exclusive",
        "performance",
        "security",
        "regions",
        "compute_domain",
        "priority",
    }
)
_MEMBER_FIELDS = frozenset({"gpus", "count", "share", "profile", "cpu", "memory", "nics", "one_root"})
_MEMORY = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}


def parse(data: Mapping[str, Any]) -> Request:
    """A request as files and the command line write it.

    ``{name: train, need: same-domain, members: [{gpus: 4, count: 18, cpu: 32, memory: 512GiB}]}``;
    ``cpu`` is cores (``1.5``) or thousandths (``1500m``), ``memory`` needs a unit, ``share`` is
    a fraction of a GPU. Raises `errors.InputError` that names field and unit, or the
    contradiction.
    """
    name = str(data.get("name") or "request")
    _known(data, _FIELDS, name)
    listed = data.get("members")
    if not isinstance(listed, list) or not listed:
        raise errors.InputError("`members` must list at least one member", place=name)
    request = Request(
        name=name,
        members=tuple(_member(item, f"{name}: members[{index}]") for index, item in enumerate(listed)),
        models=_words(data, "models", name),
        need=_choice(Need, data.get("need", Need.ANY), "need", name),
        segment=_count(data.get("segment", 1), "segment", "nodes", name, least=1),
        tenant=_word(data, "tenant", name),
        exclusive=_flag(data, "exclusive", name),
        performance=_choice(Performance, data.get("performance", _implied(listed)), "performance", name),
        security=_security(data.get("security", "container"), name),
        regions=_words(data, "regions", name),
        compute_domain=_flag(data, "compute_domain", name),
        priority=_count(data.get("priority", 0), "priority", "steps", name),
    )
    contradiction = contradiction_of(request)
    if contradiction is not None:
        raise errors.InputError(contradiction[0], place=name, hint=contradiction[1])
    return request


def of_task(name: str, task: Task) -> Request:
    """One pod of a trace as a request; a part of a GPU is time-sliced."""
    member = Member(task.gpus, share=task.share, cpu=task.cpu, memory=task.memory)
    part = 0 < task.share < WHOLE
    performance = Performance.TIME_SLICING if part else Performance.WHOLE_GPU
    return Request(name, (member,), task.models, performance=performance)


def contradiction_of(request: Request) -> tuple[str, str] | None:
    """What in the request excludes itself, and the nearest request that does not; None if nothing does."""
    shared = [member for member in request.members if member.gpus and (member.share < WHOLE or member.profile)]
    whole = request.performance in (Performance.WHOLE_GPU, Performance.WHOLE_NODE)
    if shared and whole:
        word = Performance.MIG if shared[0].profile else Performance.TIME_SLICING
        return f"performance {request.performance} excludes a part of a GPU", f"performance: {word}, or whole GPUs"
    mig_mode = request.performance is Performance.MIG
    if any(bool(member.profile) is not mig_mode for member in shared) or (mig_mode and not shared):
        return "a MIG profile goes with performance mig and nothing else", "performance: mig with a profile"
    if shared and request.security >= Security.VM:
        # A partition is never a security boundary.
        return "a part of a GPU cannot be given to a VM as a boundary", "whole GPUs, or security: container"
    if request.exclusive and not request.tenant:
        return "exclusive keeps other tenants away, and no tenant is named", "tenant: NAME"
    if request.need is Need.SPREAD and request.segment > 1:
        return "spread puts every member in a domain of its own, a segment keeps them together", "segment: 1"
    return None


def _implied(members: list[Any]) -> Performance:
    """What sharing the members ask for, where the request does not say."""
    if any(isinstance(item, Mapping) and item.get("profile") for item in members):
        return Performance.MIG
    if any(isinstance(item, Mapping) and item.get("share", 1) != 1 for item in members):
        return Performance.TIME_SLICING
    return Performance.WHOLE_GPU


def _member(item: object, place: str) -> Member:
    if not isinstance(item, Mapping):
        raise errors.InputError("a member is a mapping such as {gpus: 4, count: 18}", place=place)
    _known(item, _MEMBER_FIELDS, place)
    gpus = _count(item.get("gpus", 0), "gpus", "GPUs", place)
    profile = item.get("profile")
    if profile is not None and str(profile) not in mig.PROFILES:
        raise errors.InputError(
            f"`profile`: unknown MIG profile {profile!r}", place=place, hint=f"known: {', '.join(mig.PROFILES)}"
        )
    share = mig.PROFILES[str(profile)].share if profile is not None else _share(item.get("share", 1), place)
    if gpus != 1 and (share != WHOLE or profile):
        raise errors.InputError("`share` and `profile` go with exactly one GPU", place=place, hint="gpus: 1")
    made = Member(
        gpus=gpus,
        count=_count(item.get("count", 1), "count", "members", place, least=1),
        share=share if gpus else 0,
        profile=None if profile is None else str(profile),
        cpu=_cpu(item.get("cpu", 0), place),
        memory=_memory(item.get("memory", 0), place),
        nics=_count(item.get("nics", 0), "nics", "NICs", place),
        one_root=_flag(item, "one_root", place),
    )
    if not (made.gpus or made.cpu or made.memory or made.nics):
        raise errors.InputError("a member asks for GPUs, CPU, memory or NICs, this one for nothing", place=place)
    return made


def _known(data: Mapping[str, Any], fields: frozenset[str], place: str) -> None:
    if strange := sorted(set(map(str, data)) - fields):
        raise errors.InputError(
            f"unknown field `{strange[0]}`", place=place, hint=f"known: {', '.join(sorted(fields))}"
        )


def _count(value: object, name: str, unit: str, place: str, *, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise errors.InputError(f"`{name}` is a whole number of {unit}, at least {least}, got {value!r}", place=place)
    return value


def _share(value: object, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise errors.InputError(f"`share` is a fraction of a GPU, above 0 and up to 1, got {value!r}", place=place)
    return max(1, round(value * WHOLE))


def _cpu(value: object, place: str) -> int:
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+)m", value)):
        return int(match[1])
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 and value < float("inf"):
        return round(value * 1000)
    raise errors.InputError(f"`cpu` is cores (1.5) or thousandths of a core (1500m), got {value!r}", place=place)


def _memory(value: object, place: str) -> int:
    if value == 0:
        return 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", value) if isinstance(value, str) else None
    if match is None or match[2] not in _MEMORY:
        raise errors.InputError(f"`memory` needs one of the units {', '.join(_MEMORY)}, got {value!r}", place=place)
    return math.ceil(fractions.Fraction(match[1]) * _MEMORY[match[2]])


def _words(data: Mapping[str, Any], name: str, place: str) -> frozenset[str]:
    value = data.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise errors.InputError(f"`{name}` is a list of words, got {value!r}", place=place)
    return frozenset(value)


def _word(data: Mapping[str, Any], name: str, place: str) -> str:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise errors.InputError(f"`{name}` is a word, got {value!r}", place=place)
    return value or ""


def _flag(data: Mapping[str, Any], name: str, place: str) -> bool:
    value = data.get(name, False)
    if not isinstance(value, bool):
        raise errors.InputError(f"`{name}` is true or false, got {value!r}", place=place)
    return value


def _choice(kind: type[E], value: object, name: str, place: str) -> E:
    try:
        return kind(str(value))
    except ValueError:
        known = ", ".join(item.value for item in kind)
        raise errors.InputError(f"`{name}` is one of {known}, got {value!r}", place=place) from None


def _security(value: object, place: str) -> Security:
    if str(value) not in SECURITY:
        raise errors.InputError(f"`security` is one of {', '.join(SECURITY)}, got {value!r}", place=place)
    return SECURITY[str(value)]
