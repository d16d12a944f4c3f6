"""The stages of a wave: each acts on all its nodes at once, then reads their facts anew.

What Ansible reports gives reasons; whether a stage is done is decided by facts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bringup import acts, admission, joining, playbooks, power, reading, reboots, situations
from bringup.cluster import Cluster
from bringup.planning import NodePlan
from bringup.results import Event, Events
from bringup.stages import Stage
from bringup.transport.base import Transport
from inventory.model import Fleet, Pool
from lockstep.base import errors, journal, limits
from lockstep.base.names import ComponentName, NodeName
from lockstep.base.settings import Settings
from pinsets.facts import NodeFacts, Snapshot
from pinsets.findings import Comparison, NodeVerdict, Severity, Verdict
from pinsets.model import Component, Lock

__all__ = ["Acts", "Member", "Site", "Trouble", "after_install", "said", "ssh_transport"]


@dataclass(frozen=True, slots=True)
class Site:
    """What stays the same in a run."""

    fleet: Fleet
    pool: Pool
    lock: Lock
    settings: Settings
    book: journal.Journal
    components: Mapping[ComponentName, Component]
    cluster: Cluster | None
    joining: joining.Joining | None
    events: Events
    run: int
    """Number of the run in the journal."""


@dataclass(slots=True)
class Member:
    """One node of the wave, with the newest facts of it."""

    plan: NodePlan
    facts: NodeFacts
    before: str | None
    """Full digest of the lock that it comes from."""

    @property
    def name(self) -> NodeName:
        return self.plan.node.name

    @property
    def serial(self) -> str:
        return self.facts.serial or ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a node drops out."""

    reason: str
    lost: bool = False
    """It does not answer any more."""


class Acts:
    """Act and verify of every stage. Each returns who drops out, and why."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def driver(self, members: Sequence[Member]) -> dict[NodeName, Trouble]:
        site = self._site
        variables = acts.driver_variables(site.fleet, site.lock, site.components)
        trouble = self._play("driver", members, variables, acts.driver_files(site.fleet))
        going = [member for member in members if member.name not in trouble]
        pending: list[Member] = []
        for member, verdict in self._read(going):
            kind, reason = after_install(verdict)
            if kind is None:
                continue
            if kind == "reboot":
                pending.append(member)
            else:
                trouble[member.name] = Trouble(reason, lost=kind == "lost")
        return trouble | self._reboot(pending)

    def _reboot(self, members: Sequence[Member]) -> dict[NodeName, Trouble]:
        """Reboot the nodes whose disk equals the lock already, and prove that each did."""
        if not members:
            return {}
        boots = {member.name: member.facts.boot_id for member in members if member.facts.boot_id is not None}
        trouble = {
            member.name: Trouble("its boot id could not be read, so a reboot could not be proved")
            for member in members
            if member.name not in boots
        }
        told = [member for member in members if member.name in boots]
        trouble |= {name: Trouble(why, lost=True) for name, why in self._boot_again(told, boots).items()}
        for member, verdict in self._read([member for member in members if member.name not in trouble]):
            kind, reason = after_install(verdict)
            if member.facts.boot_id == boots[member.name]:
                trouble[member.name] = Trouble("the boot id did not change, so it was not rebooted")
            elif kind is not None:
                said = f"still not active after the reboot: {reason}" if kind == "reboot" else reason
                trouble[member.name] = Trouble(said, lost=kind == "lost")
        return trouble

    def _boot_again(self, members: Sequence[Member], boots: Mapping[NodeName, str]) -> dict[NodeName, str]:
        """Set the reboots off and wait for other boot ids; node → why it did not come back."""
        everyone = reading.targets(self._site.fleet, self._site.book)
        ways = {member.name: everyone[member.name] for member in members}
        self._say(None, Stage.DRIVER, f"rebooting {len(ways)} node{'s' if len(ways) != 1 else ''}")
        with ssh_transport() as transport:
            failed = reboots.set_off(ways, boots, transport)
            waiting = {name: way for name, way in ways.items() if name not in failed}
            return failed | reboots.wait_for_boot(
                waiting,
                boots,
                transport,
                seconds=limits.REBOOT_SECONDS,
                is_off=lambda node: power.is_off(self._site.fleet.node(node)),
                progress=lambda done, total: self._say(None, Stage.DRIVER, f"rebooted {done} of {total}"),
            )

    def join(self, members: Sequence[Member]) -> dict[NodeName, Trouble]:
        site = self._site
        if site.joining is None or site.cluster is None:
            raise errors.EngineError("a node was planned to join, but this run has no cluster")
        trouble: dict[NodeName, Trouble] = {}
        files: dict[str, bytes] = {}
        variables: dict[NodeName, dict[str, object]] = {}
        ready: list[Member] = []
        for member in members:
            try:
                name = f"kubeconfig-{member.name}"
                files[name] = joining.node_kubeconfig(site.joining, member.name).encode()
                view = site.cluster.node(member.name)
                own = acts.join_variables(member.plan.node.address, view, site.lock)
                variables[member.name] = {**own, "kubeconfig": name}
                ready.append(member)
            except errors.LockstepError as error:
                trouble[member.name] = Trouble(error.diagnostics())
        trouble |= self._play("join", ready, {}, files, variables)
        for member in ready:
            if member.name not in trouble:
                try:
                    site.cluster.wait_ready(
                        member.name, boot_id=member.facts.boot_id, seconds=limits.NODE_READY_SECONDS
                    )
                except errors.LockstepError as error:
                    trouble[member.name] = Trouble(error.message)
        return trouble

    def verify(self, members: Sequence[Member]) -> dict[NodeName, Trouble]:
        trouble: dict[NodeName, Trouble] = {}
        for member, verdict in self._read(members):
            if verdict.verdict is not Verdict.ADMIT:
                lost = verdict.verdict is Verdict.UNREACHABLE
                trouble[member.name] = Trouble("; ".join(said(verdict)) or str(verdict.verdict), lost)
        return trouble

    def admit(self, members: Sequence[Member]) -> dict[NodeName, Trouble]:
        """File on the node, read back; then the journal; the taint last, so that a kill admits nobody too early."""
        site, now = self._site, time.time()
        variables = {
            member.name: {"admission": admission.file_of(member.plan.node, site.pool.sku, site.lock, member.facts, now)}
            for member in members
        }
        verified = {member.name: member.facts for member in members}
        trouble = self._play("admit", members, {}, {}, variables)
        for member, verdict in self._read([member for member in members if member.name not in trouble]):
            found = member.facts.admission or {}
            if verdict.verdict is not Verdict.ADMIT:
                trouble[member.name] = Trouble("; ".join(said(verdict)), verdict.verdict is Verdict.UNREACHABLE)
            elif member.facts.boot_id != verified[member.name].boot_id:
                trouble[member.name] = Trouble("it was rebooted after it was verified")
            elif found.get("lock") != site.lock.full or found.get("serial") != member.serial:
                trouble[member.name] = Trouble("its admission file does not say what was written")
            else:
                why = self._let_in(member, now)
                if why is not None:
                    trouble[member.name] = why
        return trouble

    def _let_in(self, member: Member, now: float) -> Trouble | None:
        site = self._site
        site.book.admit(admission.record(member.plan.node, site.pool.sku, site.lock, member.facts, now))
        site.book.assign(member.name, member.serial, site.lock.full, site.lock.job, None)
        if site.cluster is not None and not member.plan.node.spare:
            try:
                site.cluster.admit(member.name, site.lock.full, boot_id=member.facts.boot_id)
            except errors.LockstepError as error:
                return Trouble(error.diagnostics())
        site.book.unfence(member.name)
        return None

    # ---- tools of the acts

    def _play(
        self,
        playbook: str,
        members: Sequence[Member],
        variables: Mapping[str, object],
        files: Mapping[str, bytes],
        own: Mapping[NodeName, Mapping[str, object]] | None = None,
    ) -> dict[NodeName, Trouble]:
        """Run a playbook; who failed in it."""
        if not members:
            return {}
        ways = reading.targets(self._site.fleet, self._site.book)
        hosts = [playbooks.Host(ways[member.name], (own or {}).get(member.name, {})) for member in members]
        done = playbooks.run(
            playbook, hosts, variables, files, state=self._site.settings.state, progress=self._progress(playbook)
        )
        return {name: Trouble(host.reason, lost=host.unreachable) for name, host in done.items() if not host.ok}

    def _progress(self, playbook: str) -> Callable[[NodeName | None, str], None]:
        return lambda node, text: self._say(node, playbook, text)

    def _read(self, members: Sequence[Member]) -> list[tuple[Member, NodeVerdict]]:
        """Facts read anew into each member, and the verdict against the new lock alone."""
        if not members:
            return []
        names = [member.name for member in members]
        snapshot = reading.read_nodes(self._site.fleet, names, journal=self._site.book)
        compared = self._compare(snapshot)
        found = []
        for member in members:
            member.facts = snapshot.nodes.get(member.name, member.facts)
            found.append((member, compared.nodes[member.name]))
        return found

    def _compare(self, snapshot: Snapshot) -> Comparison:
        return situations.compare_pool(self._site.pool, snapshot, self._site.lock, self._site.book, verify=True)

    def _say(self, node: NodeName | None, stage: str, text: str) -> None:
        self._site.events(Event(self._site.pool.name, node, str(stage), text))


def after_install(verdict: NodeVerdict) -> tuple[str | None, str]:
    """What follows an install: (None, …) nothing, ``reboot``, ``differs`` (a reboot is refused) or ``lost``, and why.

    Only what an install or a reboot of ours decides is looked at; the rest is the
    business of verify.
    """
    if verdict.verdict is Verdict.UNREACHABLE:
        return "lost", "; ".join(said(verdict))
    differs = [
        f"{finding.coordinate}: {finding.observed} (expected {finding.expected})"
        for finding in verdict.findings
        if finding.id.startswith("pin.")
        and finding.coordinate is not None
        and finding.severity is Severity.BLOCK
        and not finding.coordinate.component.startswith("firmware.")
    ]
    if differs:
        return (
            "differs",
            f"the disk differs from the lock after the install, so a reboot is refused: {'; '.join(differs)}",
        )
    pending = [f"{finding.coordinate}" for finding in verdict.findings if finding.id.startswith("pending.")]
    if pending:
        return "reboot", ", ".join(pending)
    return None, ""


def said(verdict: NodeVerdict) -> list[str]:
    """The findings that stand in the way, as sentences."""
    return [
        f"{finding.coordinate}: {finding.observed} (expected {finding.expected})"
        if finding.coordinate is not None
        else finding.observed
        for finding in verdict.findings
        if finding.severity not in (Severity.WARN, Severity.INFO)
    ]


@contextlib.contextmanager
def ssh_transport() -> Iterator[Transport]:
    """A transport for the length of a block."""
    from bringup.transport import ssh

    transport = ssh.Ssh()
    try:
        yield transport
    finally:
        transport.close()
