"""Bring a pool into step: read, plan, fence, then wave by wave through the stages; go on with what a killed run left.

The same work for `lockstep bringup`, for the provider plugin and for replacement.
The journal and the machines decide what is to be done, never an earlier run's plan.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from bringup import (
    admission,
    assignments,
    consent,
    fencing,
    hostkeys,
    planning,
    power,
    reading,
    reboots,
    situations,
    stagework,
    vacating,
    waves,
    wavework,
)
from bringup import preflight as preflight_module
from bringup.cluster import Cluster
from bringup.joining import Joining
from bringup.planning import Action, NodePlan
from bringup.results import Event, Events, NodeResult, Outcome, PoolResult
from bringup.situations import Picture
from bringup.stages import Stage
from bringup.stagework import Site
from bringup.words import Words
from inventory.model import Fleet, Pool
from lockstep.base import errors, journal, limits
from lockstep.base.names import NodeName
from lockstep.base.settings import Settings
from pinsets import canonical, causes, load
from pinsets import components as components_module
from pinsets.facts import NodeFacts, Snapshot

__all__ = ["bring_into_step", "preflight", "unfinished"]

preflight = preflight_module.preflight
unfinished = preflight_module.unfinished

_OUTCOMES = {
    Action.NOTHING: Outcome.IN_STEP,
    Action.ADOPT: Outcome.ADOPTED,
    Action.FORBIDDEN: Outcome.FORBIDDEN,
    Action.UNMENDED: Outcome.UNMENDED,
    Action.COMMON_CAUSE: Outcome.COMMON_CAUSE,
    Action.HELD: Outcome.HELD,
    Action.UNREACHABLE: Outcome.UNREACHABLE,
    Action.UNREADABLE: Outcome.UNREADABLE,
    Action.WORK: Outcome.NOT_STARTED,
}


def bring_into_step(
    fleet: Fleet,
    pool: Pool,
    settings: Settings,
    words: Words,
    events: Events,
    *,
    joining: Joining | None = None,
    nodes: Collection[NodeName] | None = None,
) -> PoolResult:
    """Bring the nodes of ``pool`` (or those of ``nodes``) into step with its lock, as far as consent goes.

    Raises what `preflight` raises, `errors.NotMeasuredError` when a cluster is given
    and does not answer, `errors.EngineError` when the journal or Ansible itself fails.
    What happens to single nodes is in the result, never raised. Safe to call from
    several threads for several pools, safe to repeat after a kill at any point.
    """
    lock = load.lock(pool.pinset, pool.os)
    consent.check_policy(pool, words)
    with contextlib.ExitStack() as stack:
        book = stack.enter_context(journal.open_for(settings, fleet.name))
        preflight_module.check_journal(pool, words, book)
        cluster = None
        if joining is not None:
            cluster = stack.enter_context(Cluster.from_kubeconfig(joining.kubeconfig))
        book.see_pool(pool.name, [node.name for node in pool.nodes])
        book.keep_lock(lock.full, lock.job, canonical.to_json(lock))
        site = Site(
            fleet,
            pool,
            lock,
            settings,
            book,
            components_module.load(),
            cluster,
            joining,
            events,
            book.runs.begin("bringup", pool.name),
        )
        outcome = "interrupted"
        try:
            result = _Run(site, words, frozenset(nodes) if nodes is not None else None).go()
            outcome = str(result.exit_code)
            return result
        except errors.LockstepError as error:
            outcome = error.message
            raise
        finally:
            book.runs.end(site.run, outcome)


@dataclass(slots=True)
class _Progress:
    done: int
    total: int


class _Run:
    """One run over one pool."""

    def __init__(self, site: Site, words: Words, only: frozenset[NodeName] | None) -> None:
        self._site = site
        self._words = words
        self._only = only
        self._notes: list[str] = []

    def go(self) -> PoolResult:
        site = self._site
        snapshot = self._read()
        picture = self._picture(snapshot)
        self._record(picture)
        plans = {name: planning.plan_node(situation, site.components) for name, situation in picture.situations.items()}
        self._adopt(plans, picture)
        self._release_left_over(plans)
        self._fence(picture, plans)
        results = {name: NodeResult(name, _OUTCOMES[plan.action], plan.reasons) for name, plan in plans.items()}
        newest = dict(snapshot.nodes)
        self._work(plans, picture, results, newest)
        return self._result(Snapshot(snapshot.taken_at, newest), results, picture)

    # ---- reading

    def _read(self) -> Snapshot:
        site = self._site
        self._say("reading the pool")
        names = [node.name for node in site.pool.nodes]
        snapshot = reading.read_nodes(site.fleet, names, journal=site.book)
        late = self._wait_for_boots(snapshot)
        if late:
            again = reading.read_nodes(site.fleet, late, journal=site.book)
            snapshot = Snapshot(snapshot.taken_at, {**snapshot.nodes, **again.nodes})
        return snapshot

    def _wait_for_boots(self, snapshot: Snapshot) -> list[NodeName]:
        """Nodes that a killed run may have been rebooting get the rest of their time before they count as lost."""
        site = self._site
        interrupted = site.book.runs.interrupted()
        waiting: dict[NodeName, float] = {}
        for name, facts in snapshot.nodes.items():
            attempt = interrupted.get(name)
            if facts.unreachable is None or attempt is None or attempt.stage != Stage.DRIVER:
                continue
            left = attempt.started + limits.REBOOT_SECONDS - time.time()
            if left > 0:
                waiting[name] = left
        if not waiting:
            return []
        self._say(f"waiting for {len(waiting)} nodes that an interrupted run may have rebooted")
        ways = reading.targets(site.fleet, site.book)
        with stagework.ssh_transport() as transport:
            found = reboots.wait_for_answer(
                {name: ways[name] for name in waiting},
                transport,
                seconds=max(waiting.values()),
                is_off=lambda node: power.is_off(site.fleet.node(node)),
            )
        return list(found)

    def _picture(self, snapshot: Snapshot) -> Picture:
        site = self._site
        views = situations.views_of(site.cluster)
        return situations.picture(site.pool, snapshot, site.lock, site.book, self._words, views, only=self._only)

    # ---- before the waves

    def _record(self, picture: Picture) -> None:
        """What a first reading settles: generations never seen, and the host keys that answered."""
        book = self._site.book
        known = book.generations()
        for node in self._site.pool.nodes:
            if node.slot not in known:
                book.record_generation(node.slot, node.generation)
        read = [name for name, facts in picture.snapshot.nodes.items() if facts.unreachable is None]
        hostkeys.pin_first(self._site.fleet, read, book)

    def _adopt(self, plans: Mapping[NodeName, NodePlan], picture: Picture) -> None:
        """Machines that the journal did not know and that are not ours: their lock is recorded, nothing else done."""
        site = self._site
        locks = assignments.Locks(site.book, site.lock)
        for name, plan in plans.items():
            facts = picture.snapshot.nodes.get(name)
            if not plan.adopt or facts is None or facts.unreachable is not None:
                continue
            named = (facts.admission or {}).get("lock")
            lock = (locks.get(named) if isinstance(named, str) else None) or site.lock
            site.book.keep_lock(lock.full, lock.job, canonical.to_json(lock))
            site.book.assign(name, facts.serial or "", lock.full, lock.job, None)
            if picture.situations[name].verdict.verdict.in_step:
                at = (facts.admission or {}).get("at")
                when = float(at) if isinstance(at, (int, float)) else facts.observed_at
                site.book.admit(admission.record(plan.node, site.pool.sku, lock, facts, when))
            self._say(f"adopted on lock {lock.full[:16]}, not touched", name)

    def _release_left_over(self, plans: Mapping[NodeName, NodePlan]) -> None:
        """Cordons of a killed run on nodes that this run will not work on."""
        site = self._site
        for name, fence in site.book.fences().items():
            plan = plans.get(NodeName(name))
            if plan is None or fence.kind is not journal.FenceKind.VACATING or plan.action is Action.WORK:
                continue
            if site.book.leases.holder(name) is None and plan.action is not Action.HELD:
                why = vacating.release(site.fleet, NodeName(name), site.book, site.cluster)
                if why is not None:
                    self._notes.append(f"{name}: our cordon could not be lifted: {why}")

    def _fence(self, picture: Picture, plans: Mapping[NodeName, NodePlan]) -> None:
        self._notes += fencing.fence(self._site, picture, plans, self._say)

    # ---- waves

    def _work(
        self,
        plans: Mapping[NodeName, NodePlan],
        picture: Picture,
        results: dict[NodeName, NodeResult],
        newest: dict[NodeName, NodeFacts],
    ) -> None:
        site = self._site
        out_already = self._out_already(picture)
        waiting = [
            waves.Candidate(plan.node.name, plan.node.domain, plan.vacate and plan.node.name not in out_already)
            for plan in plans.values()
            if plan.action is Action.WORK
        ]
        if not waiting:
            return
        budget = site.pool.disruption.budget.nodes_of(len(site.pool.nodes))
        state = waves.State(budget, proven=self._proven(waiting, plans))
        before = {name: situation.verdict.lock for name, situation in picture.situations.items()}
        progress = _Progress(0, len(waiting))
        worker = wavework.Worker(site)
        while waiting:
            state = replace(state, out=self._out_of_service(results, waiting))
            stop = waves.stop_reason(state, len(waiting))
            wave = waves.next_wave(waiting, state) if stop is None else ()
            if not wave:
                self._not_started(
                    waiting, results, stop or f"no budget: {state.out} of {budget} nodes are out of service"
                )
                return
            canary = not state.proven
            names = [one.name for one in wave]
            self._announce(names, progress, canary=canary)
            done = worker.work([plans[name] for name in names], newest, before)
            results.update(done.nodes)
            newest.update(done.facts)
            waiting = [one for one in waiting if one not in wave]
            progress.done += len(wave)
            failed = sum(done.nodes[name].outcome is Outcome.FAILED for name in names)
            succeeded = any(
                done.nodes[name].outcome in (Outcome.ADMITTED, Outcome.MENDED, Outcome.STAGED) for name in names
            )
            state = replace(
                state,
                failed=state.failed + failed,
                proven=state.proven or succeeded,
                canary_failed=canary and failed > 0 and done.blamed,
            )

    def _proven(self, waiting: list[waves.Candidate], plans: Mapping[NodeName, NodePlan]) -> bool:
        """No canary where nothing is installed, or where a machine of the pool was brought to this lock before."""
        if all(Stage.DRIVER not in plans[one.name].stages for one in waiting):
            return True
        members = {node.name for node in self._site.pool.nodes}
        return any(
            node in members and lock == self._site.lock.full
            for node, _, lock in self._site.book.runs.done(Stage.VERIFY)
        )

    def _out_already(self, picture: Picture) -> set[str]:
        """Nodes that take no jobs anyhow: to mend one of them takes nothing more out of service."""
        views = picture.views or {}
        return set(self._site.book.fences()) | {
            name for name, view in views.items() if view.fenced or view.unschedulable or not view.ready
        }

    def _out_of_service(self, results: Mapping[NodeName, NodeResult], waiting: list[waves.Candidate]) -> int:
        """Nodes that we keep from taking jobs now. Those that wait for their wave are counted when it takes them."""
        members = {node.name for node in self._site.pool.nodes}
        queued = {one.name for one in waiting}
        return sum(name in members and name not in queued for name in self._site.book.fences())

    def _announce(self, names: list[NodeName], progress: _Progress, *, canary: bool) -> None:
        what = "canary" if canary else f"wave of {len(names)}"
        self._site.events(
            Event(
                self._site.pool.name,
                None,
                None,
                f"{what}: {', '.join(names[:8])}{' …' if len(names) > 8 else ''}",
                progress.done,
                progress.total,
            )
        )

    def _not_started(self, waiting: list[waves.Candidate], results: dict[NodeName, NodeResult], reason: str) -> None:
        for one in waiting:
            results[one.name] = NodeResult(one.name, Outcome.NOT_STARTED, (reason,))
        self._say(reason)

    # ---- the end

    def _result(self, snapshot: Snapshot, results: Mapping[NodeName, NodeResult], picture: Picture) -> PoolResult:
        site = self._site
        comparison = situations.compare_pool(site.pool, snapshot, site.lock, site.book)
        unaccepted = {finding.id for finding in comparison.common_causes if finding.id not in self._words.accept}
        # What is withheld stays new: the next run asks again.
        site.book.see_findings(
            site.pool.name,
            {one for one in causes.seen(comparison) if f"common-cause:{one.partition(' ')[2]}" not in unaccepted},
        )
        notes = [f"burnin: {site.pool.sku.burnin} (SKU {site.pool.sku.sku})"]
        if site.cluster is None:
            notes.append("no kubeconfig was given: nodes are admitted here, and joined to no cluster")
        return PoolResult(site.pool.name, site.lock.full, results, comparison, (*notes, *self._notes))

    def _say(self, text: str, node: NodeName | None = None) -> None:
        self._site.events(Event(self._site.pool.name, node, None, text))
