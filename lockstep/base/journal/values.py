"""What the journal hands out: frozen values, plain types only (the journal knows no fleets)."""

from __future__ import annotations

import enum
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "Admission",
    "Assignment",
    "Attempt",
    "AttemptOutcome",
    "Fence",
    "FenceKind",
    "HostKeys",
    "Lease",
    "Owner",
    "Replacement",
    "ReplacementStep",
]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The lock that a node + serial is held to; changes when its wave of a roll-out starts, never before."""

    node: str
    serial: str
    """Chassis serial; empty where it could not be read."""
    lock: str
    """Full digest."""
    job: str
    """Job digest."""
    previous: str | None
    """Full digest of the lock it comes from while its roll-out runs; None when the node was admitted on `lock`."""
    since: float
    """Unix time in seconds."""


@dataclass(frozen=True, slots=True)
class Admission:
    """One act of letting a node take jobs."""

    node: str
    slot: str
    serial: str
    generation: int
    lock: str
    """Full digest."""
    job: str
    versions: Mapping[str, str]
    """Coordinate → normalised value, of every pinned coordinate at that moment."""
    burnin: str
    """``none`` is repeated in every report."""
    at: float
    """Unix time in seconds."""


class AttemptOutcome(enum.StrEnum):
    """How a stage of a node ended."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    """The node did not answer any more."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One stage of one node in one run."""

    id: int
    run: int
    node: str
    serial: str
    generation: int
    stage: str
    lock: str
    started: float
    ended: float | None
    """None: it runs, or its run was killed in it."""
    outcome: AttemptOutcome | None
    reason: str
    boot_before: str | None
    boot_after: str | None


class FenceKind(enum.StrEnum):
    """Why our taint or cordon stands on a Node; only what is recorded here is ever lifted by us."""

    FENCED = "fenced"
    """Deviates, takes no new jobs."""
    VACATING = "vacating"
    """Cordoned for a disruption that was allowed."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Our taint or cordon on one node."""

    node: str
    kind: FenceKind
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class HostKeys:
    """SSH host keys of the machine of one generation; keys of earlier generations are refused."""

    node: str
    generation: int
    keys: tuple[str, ...]
    """``TYPE BASE64`` each."""
    origin: str
    """``known_hosts`` or ``reimage``; never the network."""
    at: float


@dataclass(frozen=True, slots=True)
class ReplacementStep:
    """One step of a replacement that is done."""

    name: str
    at: float
    detail: Mapping[str, str] = field(default_factory=dict)
    """What later steps need, never a secret."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of the machine in a slot: one sequence, gone on with by the same command."""

    id: int
    node: str
    slot: str
    generation: int
    """Generation of the machine that comes."""
    started: float
    ended: float | None
    steps: tuple[ReplacementStep, ...]

    def step(self, name: str) -> ReplacementStep | None:
        """The step of that name when it is done."""
        return next((step for step in self.steps if step.name == name), None)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lease: one process of one boot of one host."""

    host: str
    machine: str
    """/etc/machine-id; empty where there is none."""
    boot_id: str
    namespace: str
    """The pid namespace, in which `pid` means something."""
    pid: int
    started: str
    """Start time of the process in clock ticks since boot: a pid is used again, this pair is not."""

    @classmethod
    def this_process(cls) -> Owner:
        """The calling process."""
        pid = os.getpid()
        return cls(
            socket.gethostname(),
            _text("/etc/machine-id"),
            _text("/proc/sys/kernel/random/boot_id"),
            _namespace(),
            pid,
            _start_ticks(pid) or "",
        )

    def is_dead_here(self) -> bool:
        """Whether this host can tell that the owner is gone. False for owners elsewhere: they may well live."""
        here = Owner.this_process()
        if self.boot_id != here.boot_id:
            # The same machine after a reboot; another machine's processes cannot be judged from here.
            return bool(self.machine) and (self.host, self.machine) == (here.host, here.machine)
        return self.namespace == here.namespace and _start_ticks(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act on one node, until `expires` unless renewed."""

    node: str
    token: int
    """Fencing token: grows with every taker, so that a late act of an earlier holder can be told."""
    owner: Owner
    purpose: str
    """For the message to whom it refuses: ``bringup of pool blackwell``."""
    expires: float
    """Unix time in seconds."""


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_ticks(pid: int) -> str | None:
    """Field 22 of /proc/PID/stat; None when there is no such process (a zombie counts as none)."""
    stat = _text(f"/proc/{pid}/stat")
    # The name in parentheses may hold blanks and parentheses of its own.
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return fields[19]
