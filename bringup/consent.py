"""Whose a node is, and what may be done to it. Pure: values in, values out.

Ours to disturb is only what was declared new and never took a job; everything
else counts as admitted and is changed by consent alone. What is not known counts
against us.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bringup.words import Words
from inventory.model import Kind, Node, NodeState, Pool
from lockstep.base import errors, limits
from lockstep.base.names import DomainName, NodeName
from pinsets import components
from pinsets.facts import NodeFacts

__all__ = [
    "Registration",
    "Standing",
    "allowed_kinds",
    "check_generations",
    "check_policy",
    "check_shrink",
    "fence_limit",
    "standing",
]


class Registration(enum.StrEnum):
    """What the cluster says of a node."""

    NO_CLUSTER = "no cluster"
    """None is used in this run, so none can hold jobs of it that we would not see as processes."""
    NONE = "not a Node"
    UNVERIFIED = "unverified"
    """A Node that carries our taint from its registration."""
    ADMITTED = "admitted"
    """A Node without it: it may hold anybody's pods."""
    UNKNOWN = "unknown"
    """The cluster did not answer."""


class Standing(enum.StrEnum):
    """Whose a node is."""

    OURS = "ours"
    """Declared new, never admitted, idle: no consent is needed."""
    ADMITTED = "admitted"
    """Takes jobs, or may: touched by consent alone."""
    OUT_OF_SERVICE = "out of service"
    """Declared in repair or held: read, never touched."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A standing and the sentence that says why."""

    standing: Standing
    why: str


def standing(
    node: Node,
    facts: NodeFacts | None,
    registration: Registration,
    *,
    admitted_before: bool,
    replacing: bool = False,
) -> Judged:
    """Whose ``node`` is.

    ``facts`` is None or unreachable when the node was not read; ``admitted_before``
    says whether the journal holds an admission of this very machine; ``replacing``
    whether a replacement of its slot was begun and not closed.
    """
    if replacing:
        # Its machine may be half exchanged, and only equality with the predecessor lets it in.
        return Judged(
            Standing.OUT_OF_SERVICE, f"is being replaced: `lockstep replace FLEET {node.name}` goes on with it"
        )
    if node.state in (NodeState.REPAIR, NodeState.HELD):
        holder = f" by {node.holder}" if node.holder else ""
        return Judged(Standing.OUT_OF_SERVICE, f"declared {node.state}{holder}")
    against = _against(node, facts, registration, admitted_before)
    return Judged(Standing.OURS, "new, never admitted, idle") if against is None else Judged(Standing.ADMITTED, against)


def _against(node: Node, facts: NodeFacts | None, registration: Registration, admitted_before: bool) -> str | None:
    """The first reason for which a node is not ours; None when there is none."""
    if node.state is not NodeState.NEW:
        return f"declared {node.state}"
    if facts is None or facts.unreachable is not None:
        return "not read, and unknown counts as admitted"
    if facts.admission is not None:
        return "has an admission file"
    if admitted_before:
        return "was admitted before, as the journal says"
    if registration is Registration.ADMITTED:
        return "is a Kubernetes Node without our taint"
    if registration is Registration.UNKNOWN:
        return "the cluster did not answer, and unknown counts as admitted"
    if facts.busy is None:
        return "whether a process holds a GPU is not known, which counts as busy"
    if facts.busy:
        return f"a process holds a GPU: {facts.busy[0]}"
    return None


def allowed_kinds(pool: Pool, words: Words, node: NodeName) -> frozenset[Kind]:
    """What policy and this run allow on a node that is not ours."""
    return frozenset(kind for kind in Kind if kind in pool.disruption.allow or words.allows(kind, node))


def check_policy(pool: Pool, words: Words) -> None:
    """Raise `errors.RefusedError` for a policy that cannot be honoured yet: to ignore it would be worse."""
    place = f"pool {pool.name}"
    if pool.disruption.plan == "required":
        raise errors.RefusedError(
            "`plan: required` is not supported yet", place=place, hint="nothing was touched; remove it to go on"
        )
    if words.plan is not None:
        raise errors.RefusedError("an approved plan is not supported yet", place=place, hint="leave --plan out")
    if pool.disruption.window != "always":
        raise errors.RefusedError(
            f"`window: {pool.disruption.window}` is not supported yet", place=place, hint="`always` is the one value"
        )
    if components.family(pool.os) in components.RPM_FAMILIES:
        # The role of the driver stage knows apt: better said here than by half a playbook.
        raise errors.RefusedError(
            f"installing packages on {pool.os} is not supported yet",
            place=place,
            hint="`lockstep pin export dnf` writes what to install; audit, lock and verify work",
        )


def check_shrink(pool: str, before: Collection[str] | None, now: Collection[str], words: Words) -> None:
    """Raise `errors.RefusedError` when a pool that stays loses many nodes and nobody repeated the number.

    More than `limits.SHRINK_SHARE` of them and at least `limits.SHRINK_NODES`: a
    typing error in a host range looks just like that.
    """
    gone = sorted(set(before or ()) - set(now))
    if before is None or len(gone) < limits.SHRINK_NODES or len(gone) <= limits.SHRINK_SHARE * len(set(before)):
        return
    if words.shrink == len(gone):
        return
    shown = ", ".join(gone[:5]) + (" …" if len(gone) > 5 else "")
    repeated = f", not {words.shrink}" if words.shrink is not None else ""
    raise errors.RefusedError(
        f"the pool would lose {len(gone)} of {len(set(before))} nodes{repeated}: {shown}",
        place=f"pool {pool}",
        hint=f"if that is meant, say --shrink {len(gone)} (LOCKSTEP_SHRINK={len(gone)}); no machine is touched by it",
    )


def check_generations(nodes: Sequence[Node], known: Mapping[str, int]) -> None:
    """Raise `errors.RefusedError` when a generation differs from the journal's.

    ``known`` maps slot → generation; a slot it does not know is only recorded.
    """
    for node in nodes:
        recorded = known.get(node.slot)
        if recorded is None or recorded == node.generation:
            continue
        if node.generation > recorded:
            raise errors.RefusedError(
                f"{node.name} has generation {node.generation}, the machine in slot {node.slot} is {recorded}",
                place=node.name,
                hint=f"run lockstep replace FLEET {node.name}",
            )
        raise errors.RefusedError(
            f"{node.name} has generation {node.generation}, but {recorded} stands in slot {node.slot} already",
            place=node.name,
            hint=f"write `generation: {recorded}` into the fleet file, as `lockstep replace` did",
        )


def fence_limit(pool: Pool) -> int:
    """How many nodes one run may fence: the largest NVLink domain, or 2 % of the pool if that is more."""
    domains: dict[DomainName, int] = {}
    for node in pool.nodes:
        domains[node.domain] = domains.get(node.domain, 0) + 1
    return max(max(domains.values(), default=1), math.ceil(limits.FENCE_SHARE * len(pool.nodes)))
