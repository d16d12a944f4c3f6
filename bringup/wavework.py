"""One wave: lease, vacate, then stage after stage for all its nodes at once; who fails drops out, the others go on.

Everything that must survive a kill is written to the journal before the act that
it is about.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bringup import stagework, vacating
from bringup.planning import NodePlan
from bringup.results import Event, NodeResult, Outcome
from bringup.stages import Stage
from bringup.stagework import Member, Site, Trouble
from lockstep.base import errors, journal
from lockstep.base.journal import AttemptOutcome
from lockstep.base.names import NodeName
from pinsets.facts import NodeFacts

__all__ = ["Worker"]


@dataclass(slots=True)
class WaveResult:
    """What became of a wave's nodes, and the newest facts of each."""

    nodes: dict[NodeName, NodeResult] = field(default_factory=dict)
    facts: dict[NodeName, NodeFacts] = field(default_factory=dict)
    blamed: bool = False
    """An act or verify failed on a node that answers: the version set may be at fault, not the node."""


class Worker:
    """Works on one wave at a time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._does = stagework.Acts(site)

    def work(
        self,
        plans: Sequence[NodePlan],
        facts: Mapping[NodeName, NodeFacts],
        before: Mapping[NodeName, str | None],
        *,
        held: journal.Held | None = None,
    ) -> WaveResult:
        """Run the wave. ``held``: leases on all its nodes, when the caller holds them already.

        Raises only what stops the whole run: `errors.EngineError` of the journal, and interrupts.
        """
        result = WaveResult()
        members = [Member(plan, facts[plan.node.name], before.get(plan.node.name)) for plan in plans]
        with contextlib.ExitStack() as stack:
            if held is None:
                members, held = self._lease(members, result, stack)
            members = self._vacate(members, result)
            self._assign(members)
            for stage, act in self._acts():
                concerned = [member for member in members if stage in member.plan.stages]
                if not concerned:
                    continue
                if held is not None:
                    held.check()
                lost = self._stage(stage, concerned, act, result)
                members = [member for member in members if member.name not in lost]
            for member in members:
                self._finish(member, result)
        return result

    def _acts(self) -> tuple[tuple[Stage, Callable[[Sequence[Member]], dict[NodeName, Trouble]]], ...]:
        return (
            (Stage.DRIVER, self._does.driver),
            (Stage.JOIN, self._does.join),
            (Stage.VERIFY, self._does.verify),
            (Stage.ADMIT, self._does.admit),
        )

    # ---- before the stages

    def _lease(
        self, members: list[Member], result: WaveResult, stack: contextlib.ExitStack
    ) -> tuple[list[Member], journal.Held | None]:
        """Leases on every node that is free; the others come out as busy."""
        left = list(members)
        while left:
            purpose = f"bringing pool {self._site.pool.name} into step"
            try:
                holding = self._site.book.leases.holding([member.name for member in left], purpose)
                held = stack.enter_context(holding)
                return self._not_overtaken(left, result), held
            except errors.BusyError as error:
                busy = next((member for member in left if member.name == error.place), None)
                if busy is None:
                    raise
                result.nodes[busy.name] = NodeResult(busy.name, Outcome.BUSY, (error.message,))
                left.remove(busy)
        return [], None

    def _not_overtaken(self, members: list[Member], result: WaveResult) -> list[Member]:
        """Without those that another run admitted between our reading and our lease: they are not ours any more."""
        admitted = self._site.book.admissions()
        left = []
        for member in members:
            newest = admitted.get(member.name)
            if newest is not None and newest.serial == member.serial and newest.at > member.facts.observed_at:
                why = "another run admitted it meanwhile; run again to look at it anew"
                result.nodes[member.name] = NodeResult(member.name, Outcome.BUSY, (why,))
            else:
                left.append(member)
        return left

    def _vacate(self, members: list[Member], result: WaveResult) -> list[Member]:
        """Empty those that are not ours; who is not vacant in time is left as it was."""
        occupied = [member for member in members if member.plan.vacate]
        if not occupied:
            return members
        site = self._site
        busy = vacating.vacate(
            site.fleet,
            site.pool,
            [member.name for member in occupied],
            site.book,
            site.cluster,
            say=lambda node, text: self._say(node, "vacate", text),
        )
        for name, why in busy.items():
            result.nodes[name] = NodeResult(name, Outcome.BUSY, (why,))
        return [member for member in members if member.name not in busy]

    def _assign(self, members: Sequence[Member]) -> None:
        """The wave starts: from here on its nodes are held to the new lock, and the earlier one counts as well."""
        lock = self._site.lock
        for member in members:
            before = member.before if member.before != lock.full else None
            self._site.book.assign(member.name, member.serial, lock.full, lock.job, before)

    # ---- stages

    def _stage(
        self,
        stage: Stage,
        members: Sequence[Member],
        act: Callable[[Sequence[Member]], dict[NodeName, Trouble]],
        result: WaveResult,
    ) -> set[NodeName]:
        """Run one stage for all members; the names of those that drop out."""
        site = self._site
        self._say(None, stage, f"{len(members)} node{'s' if len(members) != 1 else ''}")
        attempts = {
            member.name: site.book.runs.start_stage(
                site.run,
                member.name,
                member.serial,
                member.plan.node.generation,
                stage,
                site.lock.full,
                member.facts.boot_id,
            )
            for member in members
        }
        try:
            trouble = act(members)
        except errors.InterruptedRunError:
            # Nobody's fault: the attempts stay open, and the next run goes on from them.
            raise
        except errors.LockstepError as error:
            trouble = {member.name: Trouble(error.diagnostics()) for member in members}
        for member in members:
            why = trouble.get(member.name)
            outcome = AttemptOutcome.DONE if why is None else AttemptOutcome.FAILED
            if why is not None and why.lost:
                outcome = AttemptOutcome.LOST
            reason = why.reason if why is not None else ""
            site.book.runs.end_stage(attempts[member.name], outcome, reason, member.facts.boot_id)
            result.facts[member.name] = member.facts
            if why is not None:
                self._drop(member, stage, why, result)
            else:
                self._say(member.name, stage, "done")
        return set(trouble)

    def _drop(self, member: Member, stage: Stage, why: Trouble, result: WaveResult) -> None:
        """The node is out of this run. One that was in service stays out of service, fenced, with the reason on it."""
        reasons = [f"{stage}: {why.reason}"]
        self._say(member.name, stage, why.reason)
        result.blamed = result.blamed or not why.lost
        if member.plan.vacate:
            self._site.book.fence(member.name, journal.FenceKind.FENCED, reasons[0])
            if self._site.cluster is not None and not member.plan.node.spare:
                try:
                    # Taint and cordon of `vacate` stand already; this says why to those who look at the Node.
                    self._site.cluster.fence(member.name, reasons[0])
                except errors.LockstepError as error:
                    reasons.append(f"and its Node could not be marked: {error.message}")
        result.nodes[member.name] = NodeResult(member.name, Outcome.FAILED, tuple(reasons))

    def _finish(self, member: Member, result: WaveResult) -> None:
        if member.plan.node.spare:
            outcome = Outcome.STAGED
        elif member.plan.vacate:
            outcome = Outcome.MENDED
        else:
            outcome = Outcome.ADMITTED
        result.nodes[member.name] = NodeResult(member.name, outcome, member.plan.reasons)
        result.facts[member.name] = member.facts
        if Stage.ADMIT not in member.plan.stages:
            # A spare ends at verify: the roll-out is over for it as well.
            self._site.book.assign(member.name, member.serial, self._site.lock.full, self._site.lock.job, None)
            if member.plan.vacate:
                self._site.book.unfence(member.name)

    def _say(self, node: NodeName | None, stage: str, text: str) -> None:
        self._site.events(Event(self._site.pool.name, node, str(stage), text))
