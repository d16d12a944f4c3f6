"""The reservation protocol over any store: reserve, confirm, release, vacate, expire, rebuild.

Gangs over several domains take them in name order. The part in the first domain is the
gang's decision: it is written first and changed first when binding, changed first and
removed last when releasing, so whoever finds a part asks the first domain what became of
the gang. A crash between two writes therefore leaves only what `expire` settles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lockstep.base import errors
from placement.ledger import records
from placement.ledger.records import Capacity, Epochs, Hold, NodeGrant, Record, State
from placement.ledger.stores import Conflict, Store

__all__ = ["Bound", "Ledger", "NotFreeError", "Rebuilt", "StaleEpochError"]

HOLD_SECONDS = 120.0
"""Life of an unbound hold: several times a claim swap (0.1 s) and a slow scheduler cycle (40 s seen)."""
ATTEMPTS = 16
"""Compare-and-swap tries per write. Each loss means another planner's commit went through."""

Predicate = Callable[[Record, Iterable[NodeGrant]], records.Refusal | None]
"""What must hold at decision and at commit alike."""


class NotFreeError(errors.BusyError):
    """The predicate refused at commit; nothing is held."""


class StaleEpochError(errors.RefusedError):
    """The caller's hold is gone or belongs to somebody else now; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An allocated claim as the cluster's API shows it."""

    claim: str
    domains: Mapping[str, tuple[NodeGrant, ...]]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What `Ledger.rebuild` did, as sorted claim names."""

    bound: tuple[str, ...]
    """Now bound, because the API says so."""
    draining: tuple[str, ...]
    """Bound here, unknown to the API: kept until the node lets go."""
    conflicts: tuple[str, ...]
    """Bound by the API onto devices that another bound claim has: an alarm for people, both kept."""


class Ledger:
    """Holds on exact devices. ``clock`` gives seconds; only differences to deadlines matter."""

    def __init__(
        self, store: Store, clock: Callable[[], float], capacities: Mapping[str, Capacity] | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._capacities = capacities or {}

    def predicate(self, record: Record, wanted: Iterable[NodeGrant]) -> records.Refusal | None:
        """The one question "is it free", for planners as for the commit."""
        return records.refusal(record, wanted, self._capacities)

    async def reserve(
        self,
        claim: str,
        parts: Mapping[str, tuple[NodeGrant, ...]],
        owner: str,
        *,
        seconds: float = HOLD_SECONDS,
        also: Predicate | None = None,
    ) -> Epochs:
        """Hold ``parts`` (domain → grants), all or nothing.

        ``also`` is what else the decision rested on; it is asked at commit beside
        `predicate`. Raises `NotFreeError` with nothing held, or `Conflict` when other
        planners won every try. A claim that is held or bound already is `NotFreeError`.
        """
        if not parts:
            raise errors.InputError("a reservation needs at least one device", place=claim)
        order = tuple(sorted(parts))
        deadline = self._clock() + seconds
        epochs: dict[str, int] = {}
        for domain in order:
            hold = Hold(claim, 0, owner, State.HELD, deadline, parts[domain], order, epochs.get(order[0], 0))
            try:
                record = await self._update(domain, functools.partial(self._reserve, hold=hold, also=also))
            except (NotFreeError, Conflict):
                await self._undo(claim, epochs)
                raise
            epochs[domain] = record.holds[claim].epoch
        return epochs

    async def _undo(self, claim: str, epochs: Epochs) -> None:
        """Drop unbound parts, the deciding one first: without it the others are nobody's."""
        for domain in sorted(epochs):
            await self._update(domain, functools.partial(_cut, claim=claim, epoch=epochs[domain]))

    def _reserve(self, record: Record, *, hold: Hold, also: Predicate | None) -> Record:
        if hold.claim in record.holds:
            raise NotFreeError(f"claim {hold.claim} has a hold already", place=record.domain)
        refused = self.predicate(record, hold.nodes) or (also(record, hold.nodes) if also else None)
        if refused is not None:
            raise NotFreeError(str(refused), place=record.domain)
        return records.reserved(record, hold)

    async def confirm(self, claim: str, epochs: Epochs) -> None:
        """Bind the hold: from now on the cluster may allocate its devices, and no deadline ends it. Idempotent.

        Call it before the pod's gate is lifted: an expired hold must not be allocated late.

        Raises `StaleEpochError` when the hold ended meanwhile: then nothing is bound.
        """
        for domain in sorted(epochs):
            await self._update(domain, functools.partial(_bind, claim=claim, epoch=epochs[domain]))

    async def release(self, claim: str, epochs: Epochs) -> None:
        """Give up a hold. An unbound one is gone at once; a bound one drains until `vacate`. Idempotent.

        Raises `StaleEpochError` when the claim is held under another epoch by now.
        """
        first, *rest = sorted(epochs)
        record = await self._update(first, functools.partial(_give_up, claim=claim, epoch=epochs[first]))
        if claim not in record.holds:
            await self._undo(claim, {domain: epochs[domain] for domain in rest})
            return
        for domain in rest:
            await self._update(domain, functools.partial(_drain, claim=claim, epoch=epochs[domain]))

    async def vacate(self, domain: str, claim: str, node: str) -> bool:
        """``node`` has let go of a draining claim; whether the node is free of it now.

        False while the claim does not drain: a node that lets go first must say so again.
        """
        record = await self._update(domain, functools.partial(_vacate, claim=claim, node=node))
        hold = record.holds.get(claim)
        return hold is None or all(grant.node != node for grant in hold.nodes)

    async def expire(self, domain: str) -> list[str]:
        """End the unbound holds of ``domain`` past their deadline and settle parts of gangs; the claims that ended.

        Whoever calls it may die at any point: the next call goes on.
        """
        ended = []
        record, _ = await self._store.read(domain)
        for hold in record.holds.values():
            if hold.domains[0] != domain:
                gone = await self._settle(domain, hold)
            elif hold.state is State.HELD and self._clock() >= hold.deadline:
                gone = await self._end(domain, hold)
            elif not hold.nodes:
                gone = await self._forget(domain, hold)
            else:
                gone = False
            if gone:
                ended.append(hold.claim)
        return ended

    async def _settle(self, domain: str, hold: Hold) -> bool:
        """A part away from its gang's first domain follows what that one says; whether it ended."""
        if hold.state is State.DRAINING:
            return False
        first = hold.domains[0]
        lead = _current((await self._store.read(first))[0], hold.claim, hold.lead)
        if lead is not None and lead.state is State.HELD and self._clock() >= lead.deadline:
            await self._end(first, lead)
            lead = _current((await self._store.read(first))[0], hold.claim, hold.lead)
        if lead is None:
            # Only an unbound gang loses its first part before the others.
            return await self._end(domain, hold)
        if lead.state is not hold.state and lead.state is not State.HELD:
            await self._update(domain, functools.partial(_follow, hold=hold, state=lead.state))
        return False

    async def _end(self, domain: str, hold: Hold) -> bool:
        """Drop ``hold`` if it is still unbound; whether it was dropped."""
        before, _ = await self._store.read(domain)
        if _current(before, hold.claim, hold.epoch) is None:
            return False
        after = await self._update(domain, functools.partial(_cut, claim=hold.claim, epoch=hold.epoch))
        return _current(after, hold.claim, hold.epoch) is None

    async def _forget(self, domain: str, hold: Hold) -> bool:
        """Drop the empty mark of a gang whose other parts are gone; whether it was dropped."""
        for other in hold.domains[1:]:
            record, _ = await self._store.read(other)
            part = record.holds.get(hold.claim)
            if part is not None and part.lead == hold.epoch:
                return False
        await self._update(domain, functools.partial(_cut_mark, claim=hold.claim, epoch=hold.epoch))
        return True

    async def rebuild(self, bound: Iterable[Bound], *, dead: Callable[[str], bool] = lambda owner: True) -> Rebuilt:
        """Make the ledger agree with the API's allocated claims; call it before serving after a restart,
        under the engine's lease (a second rebuild with an older listing would bring back what the first one ended).

        Bound holds unknown to the API drain if ``dead`` says that their owner is gone (default:
        this is the only planner): a live one may be about to allocate. Unbound holds stay and
        end by their deadline.
        """
        listed = list(bound)
        known: dict[str, set[str]] = {}
        conflicts, draining = set(), set()
        for item in listed:
            order = tuple(sorted(item.domains))
            lead = 0
            for domain in order:
                known.setdefault(domain, set()).add(item.claim)
                hold = Hold(item.claim, 0, "rebuild", State.BOUND, 0.0, item.domains[domain], order, lead)
                before, _ = await self._store.read(domain)
                others = Record(domain, before.epoch, _bound_others(before, item.claim))
                if self.predicate(others, hold.nodes) is not None:
                    conflicts.add(item.claim)
                after = await self._update(domain, functools.partial(_adopt, hold=hold))
                lead = lead or after.holds[item.claim].epoch
        for domain in await self._store.domains():
            record, _ = await self._store.read(domain)
            for claim, hold in record.holds.items():
                orphan = hold.state is State.BOUND and claim not in known.get(domain, set()) and dead(hold.owner)
                if orphan:
                    draining.add(claim)
                    await self._update(domain, functools.partial(_follow, hold=hold, state=State.DRAINING))
        return Rebuilt(
            tuple(sorted({item.claim for item in listed})), tuple(sorted(draining)), tuple(sorted(conflicts))
        )

    async def _update(self, domain: str, change: Callable[[Record], Record]) -> Record:
        """Read, change, replace; again when somebody else was faster. An unchanged record is not written."""
        for _ in range(ATTEMPTS):
            before, version = await self._store.read(domain)
            after = change(before)
            if after is before:
                return before
            try:
                written, _ = await self._store.replace(after, version)
            except Conflict:
                continue
            return written
        raise Conflict(f"domain {domain}: {ATTEMPTS} commits lost to other planners", place=domain)


def _current(record: Record, claim: str, epoch: int) -> Hold | None:
    hold = record.holds.get(claim)
    return hold if hold is not None and hold.epoch == epoch else None


def _cut(record: Record, *, claim: str, epoch: int) -> Record:
    hold = _current(record, claim, epoch)
    return record if hold is None or hold.state is not State.HELD else records.without(record, claim)


def _cut_mark(record: Record, *, claim: str, epoch: int) -> Record:
    hold = _current(record, claim, epoch)
    return record if hold is None or hold.nodes else records.without(record, claim)


def _bind(record: Record, *, claim: str, epoch: int) -> Record:
    hold = _current(record, claim, epoch)
    if hold is None or hold.state is State.DRAINING:
        raise StaleEpochError(f"hold {epoch} of claim {claim} has ended", place=record.domain)
    return records.moved(record, claim, State.BOUND)


def _give_up(record: Record, *, claim: str, epoch: int) -> Record:
    """In the deciding domain: unbound goes, bound drains."""
    after = _drain(record, claim=claim, epoch=epoch)
    return records.without(record, claim) if after is not record and record.holds[claim].state is State.HELD else after


def _drain(record: Record, *, claim: str, epoch: int) -> Record:
    hold = record.holds.get(claim)
    if hold is None:
        return record
    if hold.epoch != epoch:
        raise StaleEpochError(f"claim {claim} is held under epoch {hold.epoch}, not {epoch}", place=record.domain)
    return records.moved(record, claim, State.DRAINING)


def _vacate(record: Record, *, claim: str, node: str) -> Record:
    hold = record.holds.get(claim)
    if hold is None or hold.state is not State.DRAINING:
        return record
    return records.vacated(record, claim, node)


def _follow(record: Record, *, hold: Hold, state: State) -> Record:
    return record if _current(record, hold.claim, hold.epoch) is None else records.moved(record, hold.claim, state)


def _adopt(record: Record, *, hold: Hold) -> Record:
    """A claim that the API shows as allocated is bound with the API's devices, under the epoch it had."""
    before = record.holds.get(hold.claim)
    same = before is not None and (before.nodes, before.lead) == (hold.nodes, hold.lead)
    if before is None or not same or before.state is State.DRAINING:
        return records.reserved(records.without(record, hold.claim), hold)
    return records.moved(record, hold.claim, State.BOUND)


def _bound_others(record: Record, claim: str) -> dict[str, Hold]:
    return {name: hold for name, hold in record.holds.items() if name != claim and hold.state is State.BOUND}
