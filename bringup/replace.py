"""Replace a failed node: one journalled sequence that the same command goes on with after a kill at any point.

    lease → cordon, taint → drained → powered off, proved → old credentials refused → re-imaged → booted
    → stages on the slot's assigned lock → versions equal → admitted → generation written → closed

Nothing that cannot be taken back happens before the machine is proved off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Mapping
from dataclasses import dataclass

from bringup import assignments, power, reading, reboots, replacing, stagework, wavework
from bringup.cluster import Cluster
from bringup.joining import Joining
from bringup.planning import Action, NodePlan
from bringup.results import Event, Events, Outcome
from bringup.stages import Stage
from bringup.stagework import Site
from bringup.words import Words
from inventory.model import Fleet, Node, NodeState, Pool
from lockstep.base import errors, journal, limits
from lockstep.base.names import NodeName
from lockstep.base.settings import Settings
from pinsets import canonical, equality, load, waivers
from pinsets import components as components_module
from pinsets.facts import NodeFacts
from pinsets.model import Lock

__all__ = ["Replaced", "replace"]


@dataclass(frozen=True, slots=True)
class Replaced:
    """A replacement that was closed."""

    node: NodeName
    generation: int
    seconds: float
    """Time to repair, from the first step on."""
    serial: str
    lock: str
    notes: tuple[str, ...]
    changes: replacing.FileChange
    """What the fleet file says now, or should say."""


def replace(
    fleet: Fleet,
    name: str,
    settings: Settings,
    words: Words,
    events: Events,
    *,
    joining: Joining | None = None,
    write: bool = True,
) -> Replaced:
    """Replace the machine of node ``name``, or go on with a replacement that was stopped.

    ``write`` False leaves the fleet file alone; the change is in the result.
    Raises `errors.RefusedError` for a healthy node, a kind that is not allowed, and
    versions that are not equal; `errors.BusyError` when the node is leased or does
    not become vacant; `errors.EngineError` when a power command or a stage failed;
    `errors.InputError` for an unknown node or a BMC that cannot do it. The journal
    keeps what was done: the same call goes on.
    """
    node = fleet.node(name)
    if node is None:
        raise errors.InputError(f"fleet {fleet.name} has no node `{name}`", place=str(fleet.path))
    pool = fleet.pool_of(node)
    load.lock(pool.pinset, pool.os)
    driver = power.driver_of(node)
    power.check_complete(node)
    with contextlib.ExitStack() as stack:
        book = stack.enter_context(journal.open_for(settings, fleet.name))
        cluster = None
        if joining is not None:
            cluster = stack.enter_context(Cluster.from_kubeconfig(joining.kubeconfig))
        held = stack.enter_context(book.leases.holding([node.name], f"replacing {node.name}"))
        if book.runs.open_replacement(node.slot) is None:
            replacing.check_allowed(fleet, pool, node, words, book, cluster, driver)
        work = _Replacement(fleet, pool, node, settings, events, book, cluster, joining, driver, held)
        return work.go(write=write)


class _Replacement:
    """One sequence under one lease."""

    def __init__(
        self,
        fleet: Fleet,
        pool: Pool,
        node: Node,
        settings: Settings,
        events: Events,
        book: journal.Journal,
        cluster: Cluster | None,
        joining: Joining | None,
        driver: power.PowerDriver,
        held: journal.Held,
    ) -> None:
        self._fleet, self._pool, self._node = fleet, pool, node
        self._settings, self._events, self._book = settings, events, book
        self._cluster, self._joining, self._driver, self._held = cluster, joining, driver, held
        known = book.generation(node.slot)
        if known is None:
            # Never seen: what the file says stands there now.
            book.record_generation(node.slot, node.generation)
            known = node.generation
        self._record = book.runs.begin_replacement(node.name, node.slot, max(known + 1, node.generation))
        self._notes: list[str] = []

    @property
    def _generation(self) -> int:
        return self._record.generation

    def go(self, *, write: bool) -> Replaced:
        """All steps that are not done yet, in order."""
        self._step("cordoned", self._cordon)
        self._step("drained", self._drain)
        self._step("powered-off", self._power_off)
        self._step("revoked", self._revoke)
        self._step("reimaged", self._reimage)
        site, plan = self._new_machine()
        facts = self._boot(site)
        if self._record.step("admitted") is None:
            facts = self._stages(site, plan, facts)
            self._equality(site, facts)
            self._admit(site, plan, facts)
            self._done("admitted")
        self._book.record_generation(self._node.slot, self._generation)
        serial = facts.serial or ""
        change = replacing.change_file(self._fleet, self._node, self._generation, serial, write=write)
        seconds = self._book.runs.end_replacement(self._record.id)
        self._book.runs.end(site.run, "replaced")
        self._say(f"closed: {seconds:.0f} s from the first step to admission")
        return Replaced(self._node.name, self._generation, seconds, serial, site.lock.full, tuple(self._notes), change)

    # ---- before the exchange

    def _cordon(self) -> Mapping[str, str]:
        """Keep jobs off, and remember what later steps compare with: lock, serial and Node of the predecessor."""
        book, node = self._book, self._node
        book.fence(node.name, journal.FenceKind.VACATING, "being replaced")
        uid = ""
        if self._cluster is not None and not node.spare:
            view = self._cluster.node(node.name)
            if view is not None:
                uid = view.uid
                self._cluster.vacate(node.name, "being replaced", "lockstep replace")
        assigned = book.assignments().get(node.name)
        lock = assigned.lock if assigned is not None else load.lock(self._pool.pinset, self._pool.os).full
        return {"uid": uid, "lock": lock, "serial": assigned.serial if assigned is not None else ""}

    def _drain(self) -> Mapping[str, str]:
        said = replacing.drain(self._fleet, self._pool, self._node, self._book, self._cluster, self._driver, self._say)
        return {"said": said}

    def _power_off(self) -> Mapping[str, str]:
        self._held.check()
        self._driver.power_off()
        return {"state": self._driver.state()}

    def _prove_off(self) -> None:
        """Off before, but a run may have been killed since and somebody have switched it on."""
        self._held.check()
        if self._driver.state() != "off":
            self._say("was switched on again: powered off once more")
            self._driver.power_off()

    def _revoke(self) -> Mapping[str, str]:
        """From here on the old machine's host keys and Node are worth nothing, even if it comes back."""
        self._prove_off()
        self._book.pin_host_keys(self._node.name, self._generation, (), "revoked")
        uid = self._detail("cordoned", "uid")
        if self._cluster is not None and uid:
            self._cluster.delete_node(self._node.name, uid=uid)
        return {}

    def _reimage(self) -> Mapping[str, str]:
        self._prove_off()
        keys = self._driver.reimage()
        self._book.pin_host_keys(self._node.name, self._generation, keys, "reimage")
        return {"keys": str(len(keys))}

    # ---- the new machine

    def _new_machine(self) -> tuple[Site, NodePlan]:
        """The fleet as it will be, with the new generation in the slot, and the plan of its stages."""
        state = NodeState.IN_SERVICE if self._node.state is NodeState.REPAIR else self._node.state
        new = dataclasses.replace(self._node, generation=self._generation, state=state, holder=None, serial=None)
        nodes = tuple(new if node.name == new.name else node for node in self._pool.nodes)
        pool = dataclasses.replace(self._pool, nodes=nodes)
        pools = tuple(pool if one.name == pool.name else one for one in self._fleet.pools)
        joins = (Stage.JOIN,) if self._cluster is not None and not new.spare else ()
        site = Site(
            dataclasses.replace(self._fleet, pools=pools),
            pool,
            self._slot_lock(),
            self._settings,
            self._book,
            components_module.load(),
            self._cluster,
            self._joining,
            self._events,
            self._book.runs.begin("replace", pool.name),
        )
        return site, NodePlan(new, Action.WORK, (Stage.DRIVER, *joins, Stage.VERIFY))

    def _slot_lock(self) -> Lock:
        """The lock that the predecessor was held to: a replacement is no roll-out."""
        current = load.lock(self._pool.pinset, self._pool.os)
        wanted = self._detail("cordoned", "lock")
        lock = assignments.Locks(self._book, current).get(wanted)
        if lock is None:
            raise errors.EngineError(
                f"the slot's assigned lock {wanted[:16]} is neither in the journal nor in pinsets/locks",
                place=self._node.name,
            )
        self._book.keep_lock(lock.full, lock.job, canonical.to_json(lock))
        return lock

    def _boot(self, site: Site) -> NodeFacts:
        if self._driver.state() != "on":
            self._driver.power_on()
        self._say("waiting for the new machine to answer")
        way = reading.targets(site.fleet, self._book)[self._node.name]
        with stagework.ssh_transport() as transport:
            found = reboots.wait_for_answer(
                {self._node.name: way},
                transport,
                seconds=limits.REBOOT_SECONDS,
                is_off=lambda node: power.is_off(site.fleet.node(node)),
            )
        facts = reading.read_nodes(site.fleet, [self._node.name], journal=self._book).nodes[self._node.name]
        if not found or facts.unreachable is not None:
            raise errors.EngineError(f"the new machine does not answer: {facts.unreachable}", place=self._node.name)
        old = self._detail("cordoned", "serial")
        if old and facts.serial == old:
            self._notes.append(f"the serial is still {old}: the same chassis, with a fresh system")
        return facts

    def _stages(self, site: Site, plan: NodePlan, facts: NodeFacts) -> NodeFacts:
        done = wavework.Worker(site).work([plan], {plan.node.name: facts}, {}, held=self._held)
        result = done.nodes[plan.node.name]
        if result.outcome not in (Outcome.ADMITTED, Outcome.STAGED):
            raise errors.EngineError(
                "; ".join(result.reasons), place=self._node.name, hint="mend the cause, then run the same command again"
            )
        return done.facts[plan.node.name]

    def _equality(self, site: Site, facts: NodeFacts) -> None:
        """The gate: every pinned coordinate equals the lock and what the predecessor was last admitted with."""
        before = self._book.last_admission(self._node.slot, before_generation=self._generation)
        if before is not None and before.lock != site.lock.full:
            self._notes.append("the predecessor was last admitted on another lock: compared with the lock alone")
            before = None
        elif before is None:
            self._notes.append("no admission of the predecessor is recorded: compared with the lock alone")
        current = equality.version_map(facts, site.lock, self._pool.sku)
        differences = equality.compare(
            current,
            site.lock,
            before.versions if before is not None else None,
            self._pool.sku,
            waivers.current(self._node.waivers, datetime.datetime.now(datetime.UTC).date()),
        )
        if differences:
            said = "; ".join(
                f"{one.coordinate} is {one.current}, expected {one.expected}"
                + (f", predecessor {one.predecessor}" if one.predecessor is not None else "")
                + f" ({one.reason})"
                for one in differences
            )
            raise errors.RefusedError(
                f"it may not rejoin, its versions are not equal: {said}",
                place=self._node.name,
                hint="bring those to the lock, then run the same command again; the node takes no jobs until then",
            )
        self._say(f"equal in all {len(current)} pinned coordinates")

    def _admit(self, site: Site, plan: NodePlan, facts: NodeFacts) -> None:
        if plan.node.spare:
            self._book.unfence(plan.node.name)
            return
        last = dataclasses.replace(plan, stages=(Stage.ADMIT,))
        done = wavework.Worker(site).work([last], {plan.node.name: facts}, {}, held=self._held)
        result = done.nodes[plan.node.name]
        if result.outcome is not Outcome.ADMITTED:
            raise errors.EngineError("; ".join(result.reasons), place=self._node.name)

    # ---- the journal

    def _step(self, name: str, act: replacing.StepAct) -> None:
        """Run a step that is not done, and record it after it is."""
        if self._record.step(name) is not None:
            self._say(f"{name}: done before")
            return
        self._say(name)
        self._done(name, act())

    def _done(self, name: str, detail: Mapping[str, str] | None = None) -> None:
        self._book.runs.step_done(self._record.id, name, detail)
        again = self._book.runs.open_replacement(self._node.slot)
        assert again is not None  # noqa: S101 - it is only closed at the end of `go`
        self._record = again

    def _detail(self, step: str, name: str) -> str:
        found = self._record.step(step)
        return found.detail.get(name, "") if found is not None else ""

    def _say(self, text: str) -> None:
        self._events(Event(self._pool.name, self._node.name, "replace", text))
