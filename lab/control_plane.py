"""The lab's own Kubernetes control plane: etcd, API server, controllers, scheduler and kwok on loopback.

Everything lies in the lab's state folder: ``kubeconfig`` (administrator), ``node-tokens/NODE``
(what `join` hands to a node), and ``control-plane/`` (ports, certificates, tokens, records of
what runs, logs, etcd's data). Programs run on after the command that started them.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import SecretStr

from lab import control_plane_credentials as credentials
from lab import control_plane_files as files
from lab import control_plane_ports as ports
from lab import control_plane_processes as processes
from lab import control_plane_programs as plans
from lockstep.base import errors, names

__all__ = ["Endpoint", "ProgramStatus", "kubeconfig", "node_kubeconfig", "node_token", "start", "status", "stop"]

READY_SECONDS = 300.0
"""For each program, and only while it lives. The API server needs 5 s on idle cores, minutes on very busy ones."""

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach a started control plane."""

    server: str
    """URL of the API server."""
    kubeconfig: Path
    """The administrator's, 0600."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramStatus:
    """One program, as it is now."""

    name: str
    pid: int | None
    """None when it does not run."""
    port: int | None
    healthy: bool
    detail: str
    """Why it is not healthy; empty when it is."""


def kubeconfig(state: Path) -> Path:
    """Path of the administrator's kubeconfig of the lab with this state folder; it never changes."""
    return state / "kubeconfig"


def node_token(state: Path, node: str) -> SecretStr:
    """The token of one lab node. Raises `errors.InputError` when `lab up` made none for it."""
    path = state / "node-tokens" / node
    try:
        return SecretStr(path.read_text().strip())
    except FileNotFoundError:
        raise errors.InputError(f"no token for node {node}", place=str(path), hint="run `lockstep lab up`") from None


def node_kubeconfig(state: Path, node: str) -> str:
    """Text of the kubeconfig that the kubelet of a lab node uses. Raises as `node_token`."""
    plan = _read(state, state / "control-plane")
    user = credentials.User(credentials.NODE_PREFIX + node, "system:nodes")
    return credentials.kubeconfig(plan.server, plan.pki.authority, user, node_token(state, node))


def start(
    state: Path, nodes: Sequence[str], progress: Progress, *, owner: int | None = None, durable: bool = True
) -> Endpoint:
    """Start what does not run yet, wait until everything is healthy, and return how to reach it.

    ``nodes`` are all nodes of the lab: each gets a token. ``owner`` is the pid of a process that the
    control plane must not outlive (tests); ``durable=False`` lets etcd not wait for the disk.
    Repeating it changes nothing; a program whose arguments or tokens changed is restarted alone.
    Raises `errors.BusyError` when a port is taken or another process starts or stops the same
    control plane, `errors.EngineError` when a program is not built or ends; what this call started
    is ended again then.
    """
    if bad := [node for node in nodes if not names.is_node_name(node)]:
        raise errors.InputError(f"not a node name: {bad[0]!r}")
    files.ensure_folder(state)
    folder = files.ensure_folder(state / "control-plane")
    for part in ("pids", "logs"):
        files.ensure_folder(folder / part)
    with files.locked(folder / "lock", "the control plane"):
        plan = _prepare(state, folder, nodes, owner, durable)
        programs = plans.plan(plan)
        for program in programs:  # before anything is touched
            if program.port is not None and not processes.lives(processes.read(_record_path(folder, program.name))):
                ports.ensure_free(program.name, program.port)
        started: list[processes.Record] = []
        try:
            for program in programs:
                _start(plan, program, progress, started)
            for program in programs:
                _wait_healthy(plan, program)
        except BaseException:
            for record in reversed(started):
                processes.end(record)
            raise
    progress(f"control plane is ready at {plan.server}")
    return Endpoint(plan.server, kubeconfig(state))


def stop(state: Path, progress: Progress, *, spare: int | None = None) -> None:
    """End everything that `start` started, the last first, and wait for it; repeating it changes nothing.

    ``spare`` is a pid that is left alone: the watcher's, when it is the watcher that stops the rest.
    """
    folder = state / "control-plane"
    if not folder.exists():
        return
    with files.locked(folder / "lock", "the control plane"):
        for name in ("watcher", *reversed(plans.PORTS)):
            path = _record_path(folder, name)
            record = processes.read(path)
            if record is not None and record.pid != spare and processes.lives(record):
                progress(f"stopping {name} (pid {record.pid})")
                processes.end(record)
            path.unlink(missing_ok=True)


def status(state: Path) -> tuple[ProgramStatus, ...]:
    """Every program with its pid and health, asked now; empty when this lab never had a control plane."""
    folder = state / "control-plane"
    if not (folder / "ports.json").exists() or not (folder / "tokens.csv").exists():
        return ()
    plan = _read(state, folder)
    found = []
    for name in plans.NAMES:
        record = processes.read(_record_path(folder, name))
        runs = record is not None and processes.lives(record)
        reason = plans.health(plan, name) if runs else "does not run"
        found.append(
            ProgramStatus(name, record.pid if record and runs else None, plan.ports.get(name), not reason, reason)
        )
    return tuple(found)


def _prepare(state: Path, folder: Path, nodes: Sequence[str], owner: int | None, durable: bool) -> plans.Plan:
    """Write everything that the programs read; nothing of it changes when nothing changed."""
    pki = credentials.ensure_pki(folder)
    wanted = credentials.users(nodes)
    tokens = credentials.ensure_tokens(folder, wanted)
    numbers = ports.choose(folder, plans.PORTS)
    owned = f"{owner}:{processes.start_time(owner)}" if owner is not None else ""
    plan = plans.Plan(state, folder, numbers, pki, tokens, owned, durable)
    configs = {
        Path(plan.kubeconfig("kube-controller-manager")): credentials.CONTROLLER_MANAGER,
        Path(plan.kubeconfig("kube-scheduler")): credentials.SCHEDULER,
        Path(plan.kubeconfig("kwok")): credentials.KWOK,
        Path(plan.kubeconfig("watcher")): credentials.WATCHER,
        kubeconfig(state): credentials.ADMIN,
    }
    for path, user in configs.items():
        files.write_private(path, credentials.kubeconfig(plan.server, pki.authority, user, tokens[user.name]))
    files.write_private(folder / "kube-scheduler.json", plans.scheduler_configuration(plan))
    _write_node_tokens(files.ensure_folder(state / "node-tokens"), nodes, tokens)
    return plan


def _read(state: Path, folder: Path) -> plans.Plan:
    tokens = credentials.read_tokens(folder)
    return plans.Plan(
        state, folder, ports.choose(folder, plans.PORTS), credentials.Pki(folder / "pki"), tokens, "", True
    )


def _write_node_tokens(folder: Path, nodes: Sequence[str], tokens: dict[str, SecretStr]) -> None:
    for stale in {path.name for path in folder.iterdir()} - set(nodes):
        (folder / stale).unlink()
    for node in nodes:
        files.write_private(folder / node, tokens[credentials.NODE_PREFIX + node].get_secret_value() + "\n")


def _start(plan: plans.Plan, program: plans.Program, progress: Progress, started: list[processes.Record]) -> None:
    """Start one program unless it runs as wanted; etcd and the API server are waited for, the others need them."""
    folder = plan.folder
    path = _record_path(folder, program.name)
    record = processes.read(path)
    if record is not None and processes.lives(record):
        if record.fingerprint == program.fingerprint:
            return
        progress(f"restarting {program.name}: its arguments or tokens changed")
        processes.end(record)
    else:
        progress(f"starting {program.name}")
    if program.name == "kube-apiserver":
        _end_clients(folder)
    # Proxies and ~/.kwok of whoever calls have no place here: everything these programs reach is on loopback.
    environ = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)}
    log = _log_path(folder, program.name)
    started.append(
        processes.spawn(program.argv, record=path, log=log, environ=environ, fingerprint=program.fingerprint)
    )
    if program.name in ("etcd", "kube-apiserver"):
        _wait_healthy(plan, program)


def _end_clients(folder: Path) -> None:
    """End what works through the API server, to be started after it: a controller manager whose API server goes
    away while it is starting ends by itself, at a moment that nobody can foresee."""
    for name in ("kwok", "kube-scheduler", "kube-controller-manager"):
        record = processes.read(_record_path(folder, name))
        if record is not None:
            processes.end(record)


def _wait_healthy(plan: plans.Plan, program: plans.Program) -> None:
    record, log = _record_path(plan.folder, program.name), _log_path(plan.folder, program.name)
    limit = time.monotonic() + READY_SECONDS
    while reason := plans.health(plan, program.name):
        if not processes.lives(processes.read(record)):
            break
        if time.monotonic() > limit:
            raise errors.EngineError(
                f"{program.name} is not healthy after {READY_SECONDS:.0f} s: {reason}", place=str(log)
            )
        time.sleep(0.1)
    # Asked even when something answers: a program left over from elsewhere on that port would, too.
    if not processes.lives(processes.read(record)):
        raise errors.EngineError(
            f"{program.name} ended at its start; its last lines:\n{processes.last_lines(log)}", place=str(log)
        )


def _record_path(folder: Path, name: str) -> Path:
    return folder / "pids" / name


def _log_path(folder: Path, name: str) -> Path:
    return folder / "logs" / f"{name}.log"
