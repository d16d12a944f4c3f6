"""One domain's record, and every way it may change: pure functions, record in, record out.

A hold goes HELD → BOUND → DRAINING → gone, or HELD → gone. What counts as free is
decided by `refusal` alone; planners use the same function on the record they saw and
the commit uses it on the record it replaces.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from placement.topology import WHOLE

__all__ = ["Capacity", "Epochs", "Grant", "Hold", "NodeGrant", "Record", "Refusal", "State", "refusal"]


class State(enum.StrEnum):
    """How far a hold has come."""

    HELD = "held"
    """Reserved, not bound; ends at its deadline."""
    BOUND = "bound"
    """The cluster has allocated exactly these devices."""
    DRAINING = "draining"
    """The claim is gone, the node has not said yet that it has let go; still occupies."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A device, or a part of one."""

    device: str
    """Stable device id: the GPU's UUID in a cluster, ``NODE/gpuN`` in simulations."""
    share: int = WHOLE
    """Thousandths of the GPU."""
    slices: int = 0
    """MIG memory slices taken, as a bit mask; 0: not a MIG instance."""
    sharing: str = ""
    """How a part of a GPU is shared (``mps``, ``time-slicing``): one way per GPU; empty: whole or MIG."""


@dataclass(frozen=True, slots=True)
class NodeGrant:
    """What a claim takes on one node."""

    node: str
    grants: tuple[Grant, ...] = ()
    cpu: int = 0
    """Thousandths of a core."""
    memory: int = 0
    """MiB."""
    nics: int = 0
    channel: bool = False
    """Whether it takes the node's one ComputeDomain channel."""
    tenant: str = ""
    exclusive: bool = False
    """Whether no other tenant may be on the node."""
    sole: bool = False
    """Whether nobody else at all may be on the node."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a node offers beside its devices."""

    cpu: int
    memory: int
    nics: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A claim's part in one domain."""

    claim: str
    """Identity of the claim or gang; one hold per claim and domain."""
    epoch: int
    """Unique in the domain and growing: who has an older one has no say any more."""
    owner: str
    """Planner that made it; for people."""
    state: State
    deadline: float
    """Seconds on the ledger's clock; counts while HELD only."""
    nodes: tuple[NodeGrant, ...]
    domains: tuple[str, ...]
    """All domains of the gang in commit order; the first one's part decides for all."""
    lead: int = 0
    """Epoch of the gang's part in the first domain; 0 in that part itself."""


@dataclass(frozen=True, slots=True)
class Record:
    """All holds inside one domain."""

    domain: str
    epoch: int = 0
    """Last epoch given out."""
    holds: Mapping[str, Hold] = field(default_factory=dict)

    def using(self, node: str) -> Iterable[NodeGrant]:
        """Every grant on ``node``."""
        return (grant for hold in self.holds.values() for grant in hold.nodes if grant.node == node)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something is not free."""

    subject: str
    """Device or node."""
    reason: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}"


Epochs = Mapping[str, int]
"""Domain → epoch: what proves that a hold is still the caller's."""


def refusal(record: Record, wanted: Iterable[NodeGrant], capacities: Mapping[str, Capacity]) -> Refusal | None:
    """The predicate: why ``wanted`` does not fit beside the record's holds; None when it does.

    Nodes without an entry in ``capacities`` are checked for everything but CPU, memory and NICs.
    """
    asked: dict[str, list[NodeGrant]] = {}
    for ask in wanted:
        others = list(record.using(ask.node))
        used = [*others, *asked.setdefault(ask.node, [])]
        found = _together(ask, others) or _devices(ask, used) or _rest(ask, used, capacities.get(ask.node))
        if found is not None:
            return found
        asked[ask.node].append(ask)
    return None


def _together(ask: NodeGrant, others: Sequence[NodeGrant]) -> Refusal | None:
    """Whether the work may stand beside what others have on the node."""
    if (ask.sole and others) or any(grant.sole for grant in others):
        return Refusal(ask.node, "somebody is there, and one of both wants the whole node")
    if any((ask.exclusive or grant.exclusive) and grant.tenant != ask.tenant for grant in others):
        return Refusal(ask.node, "another tenant is there, and one of both wants to be alone")
    return None


def _devices(ask: NodeGrant, used: Sequence[NodeGrant]) -> Refusal | None:
    if ask.channel and any(grant.channel for grant in used):
        return Refusal(ask.node, "its ComputeDomain channel is taken")
    taken: dict[str, tuple[int, int, str]] = {}
    for held in used:
        for grant in held.grants:
            share, slices, _ = taken.get(grant.device, (0, 0, ""))
            taken[grant.device] = (share + grant.share, slices | grant.slices, grant.sharing)
    for grant in ask.grants:
        share, slices, sharing = taken.get(grant.device, (0, 0, grant.sharing))
        mixed = share and (bool(slices) != bool(grant.slices) or sharing != grant.sharing)
        if share + grant.share > WHOLE or slices & grant.slices or mixed:
            return Refusal(grant.device, "held by another claim")
        taken[grant.device] = (share + grant.share, slices | grant.slices, grant.sharing)
    return None


def _rest(ask: NodeGrant, used: Sequence[NodeGrant], limit: Capacity | None) -> Refusal | None:
    if limit is not None:
        for name in ("cpu", "memory", "nics"):
            if sum(getattr(grant, name) for grant in used) + getattr(ask, name) > getattr(limit, name):
                return Refusal(ask.node, f"not enough {name} left")
    return None


def reserved(record: Record, hold: Hold) -> Record:
    """The record with ``hold`` under the next epoch (its own ``epoch`` is replaced)."""
    epoch = record.epoch + 1
    return Record(record.domain, epoch, {**record.holds, hold.claim: dataclasses.replace(hold, epoch=epoch)})


def moved(record: Record, claim: str, state: State) -> Record:
    """The record with ``claim``'s hold in ``state``; the same record if it is there already."""
    hold = record.holds[claim]
    if hold.state is state:
        return record
    return Record(record.domain, record.epoch, {**record.holds, claim: dataclasses.replace(hold, state=state)})


def without(record: Record, claim: str) -> Record:
    """The record without ``claim``'s hold."""
    return Record(record.domain, record.epoch, {name: hold for name, hold in record.holds.items() if name != claim})


def vacated(record: Record, claim: str, node: str) -> Record:
    """The record after ``node`` let go of ``claim``: that node's grants go, and the hold with its last one.

    The deciding part of a gang over several domains stays as an empty mark until the
    others are gone, so that they learn that they drain.
    """
    hold = record.holds[claim]
    left = tuple(grant for grant in hold.nodes if grant.node != node)
    if left == hold.nodes:
        return record
    if not left and (len(hold.domains) == 1 or hold.domains[0] != record.domain):
        return without(record, claim)
    return Record(record.domain, record.epoch, {**record.holds, claim: dataclasses.replace(hold, nodes=left)})
