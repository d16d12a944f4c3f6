"""A whole lab: up, down, status. What it makes lies in one folder, what it starts is known by process id."""

from __future__ import annotations

import concurrent.futures
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import base, claims, marks, nodes, repository, spec
from lab.spec import LabNode, Spec
from lockstep.base import errors, settings

__all__ = ["Status", "down", "environment", "folder", "power_on", "reimage", "status", "up"]

Progress = Callable[[str], None]
_TMPFS_SHARE = "50%"


@dataclass(frozen=True, slots=True)
class Status:
    """What is true of a lab now."""

    spec: Spec
    state: Path
    nodes: tuple[nodes.NodeStatus, ...]
    disks: Path


def folder(name: str, config: settings.Settings | None = None) -> Path:
    """The lab's state folder, which is also the ``LOCKSTEP_STATE`` of whoever works with it."""
    return (config or settings.load()).labs / name


def environment(name: str, config: settings.Settings | None = None) -> dict[str, str]:
    """What a shell needs to work with the lab. Raises `errors.InputError` for a lab that was never made."""
    state = folder(name, config)
    spec.read(state)
    return {"LOCKSTEP_STATE": str(state), "KUBECONFIG": str(state / "kubeconfig")}


@contextmanager
def _held(state: Path) -> Iterator[None]:
    """One `up` or `down` of a lab at a time."""
    state.parent.mkdir(parents=True, exist_ok=True)
    with (state.parent / f".{state.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.BusyError(
                f"another `lockstep lab` works on lab {state.name} now", hint="wait for it, then repeat the command"
            ) from None
        yield


def up(
    wanted: Spec,
    progress: Progress,
    *,
    cluster: bool = True,
    config: settings.Settings | None = None,
    owner: int | None = None,
    durable: bool = True,
) -> Status:
    """Make what is missing, start what is off, wait until every node answers. Safe to repeat, also after a kill.

    ``cluster`` also starts the control plane; ``owner`` is a pid whose end ends the control plane, ``durable=False``
    lets it skip waiting for the disk (both for tests).
    Raises `errors.InputError` (not root, other addresses than before), `errors.RefusedError` (addresses of
    another lab), `errors.EngineError` (a program failed).
    """
    base.need_root("lab up")
    found = config or settings.load()
    state = folder(wanted.name, found)
    with _held(state):
        _same_machines(wanted, state)
        claims.claim(wanted, state)
        state.mkdir(mode=0o700, exist_ok=True)
        state.chmod(0o700)
        tree = base.base_tree(found.cache, progress)
        guest = base.guest_layer(found.cache, tree)
        progress("package repository")
        repository.make(state)
        key = _client_key(state)
        disks = _disks(state, progress)
        _write_links(state, tree, guest)
        spec.write(wanted, state)
        for node in wanted.nodes:
            _make_node(state, node, disks, key, progress)
        started = _launch(state, wanted.nodes, progress)
        if cluster:
            # The nodes boot meanwhile.
            _control_plane(state, wanted, progress, owner, durable)
        # Those that a killed `up` began may still boot; one with a fault may be silent on purpose.
        awaited = [node for node in wanted.nodes if node in started or not marks.noted(state, node.name)]
        for count, node in enumerate(nodes.wait_ready(state, awaited), start=1):
            progress(f"{node.name} answers on {node.address}:{node.port} ({count} of {len(awaited)})")
        return status(state)


def _same_machines(wanted: Spec, state: Path) -> None:
    """A node that exists keeps its address and hardware."""
    if not (state / spec.FILE).is_file():
        return
    for old in spec.read(state).nodes:
        new = next((node for node in wanted.nodes if node.name == old.name), None)
        if new != old and (state / "nodes" / old.name).is_dir():
            what = "is no longer in the fleet file" if new is None else "has another address, slot or SKU now"
            raise errors.InputError(
                f"node {old.name} of lab {wanted.name} {what}",
                place=str(state / spec.FILE),
                hint=f"lockstep lab down {wanted.name} --wipe, then lab up",
            )


def _client_key(state: Path) -> str:
    """The public half of the lab's client key, made at first."""
    private = state / "ssh" / "id_ed25519"
    public = private.with_suffix(".pub")
    if not (private.is_file() and public.is_file()):
        private.parent.mkdir(mode=0o700, exist_ok=True)
        secret, shown = nodes.host_key_pair()
        with os.fdopen(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secret)
        public.write_text(f"{shown} lockstep-lab\n")
    return public.read_text()


def _disks(state: Path, progress: Progress) -> Path:
    """A folder that can carry the upper layers: in the state folder, else on a tmpfs, which is said."""
    disks = state / "disks"
    disks.mkdir(mode=0o700, exist_ok=True)
    if os.path.ismount(disks):
        return disks
    if _carries_overlay(disks):
        return disks
    progress("this file system cannot carry an overlay's upper layer: the nodes' disks are on a tmpfs, lost at reboot")
    for left in disks.iterdir():
        shutil.rmtree(left)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"mode=700,size={_TMPFS_SHARE}", "lockstep-lab", str(disks)], check=True
    )
    return disks


def _carries_overlay(disks: Path) -> bool:
    trial = disks / ".trial"
    for name in ("lower", "upper", "work", "merged"):
        (trial / name).mkdir(parents=True, exist_ok=True)
    layers = f"lowerdir={trial}/lower,upperdir={trial}/upper,workdir={trial}/work"
    # In a mount namespace of its own: nothing to undo.
    script = 'mount -t overlay -o "$1" overlay "$2" && : >"$2/file" && rm "$2/file"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", layers, str(trial / "merged")], capture_output=True
    )
    shutil.rmtree(trial)
    return done.returncode == 0


def _write_links(state: Path, tree: Path, guest: Path) -> None:
    """Which base and guest layers this lab boots; renewed by each `up`."""
    for name, target in (("base", tree), ("guest", guest)):
        fresh = state / f".{name}.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(state / name)


def _make_node(state: Path, node: LabNode, disks: Path, key: str, progress: Progress) -> None:
    """The machine, unless it exists; a half-made one is made anew. Its first host key goes into known_hosts."""
    home = nodes.folder(state, node.name)
    made = home / "made"
    if made.is_file() and (disks / node.name).is_dir():
        return
    lost = made.is_file()
    if lost:
        progress(f"{node.name}: its disk is gone (tmpfs); imaging it anew")
    nodes.power_off(state, node.name) if home.is_dir() else None
    public = nodes.install(state, node, disks, client_key=key)
    _remember(state, node, public)
    made.write_text("")


def _remember(state: Path, node: LabNode, public: str) -> None:
    """Write the node's line of known_hosts, replacing an older one."""
    path = state / "known_hosts"
    name = f"[{node.address}]:{node.port}"
    lines = path.read_text().splitlines() if path.is_file() else []
    lines = [line for line in lines if not line.startswith(f"{name} ")]
    fresh = path.with_suffix(".new")
    fresh.write_text("\n".join([*lines, f"{name} {public}"]) + "\n")
    fresh.replace(path)


def _lower(state: Path) -> tuple[list[Path], Path]:
    guest = (state / "guest").resolve()
    return [guest / "tree", (state / "base").resolve()], guest


def _launch(state: Path, wanted: Sequence[LabNode], progress: Progress) -> list[LabNode]:
    """Power on what is off; returns those nodes, still booting."""
    lower, guest = _lower(state)
    off = []
    for node in wanted:
        if marks.Kind.NODE_DEAD in marks.noted(state, node.name):
            progress(f"{node.name}: left off, it was broken on purpose (lockstep lab mend {node.name})")
            continue
        if not nodes.starting(state, node.name) and nodes.banner(node) != "refused":
            raise errors.RefusedError(
                f"something that is not this lab listens on {node.address}:{node.port}",
                place=node.name,
                hint=f"ss -ltnp 'sport = :{node.port}' shows it",
            )
        off.append(node)
    # Each start waits for its supervisor to show up; threads let these waits overlap.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        begun = list(pool.map(lambda node: nodes.power_on(state, node, lower, guest, state / "disks"), off))
    return [node for node, fresh in zip(off, begun, strict=True) if fresh]


def power_on(state: Path, name: str) -> bool:
    """Boot one node and wait for its sshd; False when it was on already."""
    node = spec.read(state).node(name)
    lower, guest = _lower(state)
    if not nodes.power_on(state, node, lower, guest, state / "disks"):
        return False
    for _ in nodes.wait_ready(state, [node]):
        pass
    return True


def reimage(state: Path, name: str) -> str:
    """A new machine with a fresh disk in the node's slot, booted; returns its host key as ``TYPE BASE64``.

    known_hosts keeps the first key: what replaces it is this answer, for whoever asked.
    """
    node = spec.read(state).node(name)
    nodes.power_off(state, name)
    public = nodes.install(state, node, state / "disks", client_key=_client_key(state))
    power_on(state, name)
    return public


def _control_plane(state: Path, wanted: Spec, progress: Progress, owner: int | None, durable: bool) -> None:
    from lab import control_plane

    control_plane.start(state, [node.name for node in wanted.nodes], progress, owner=owner, durable=durable)


def down(name: str, progress: Progress, *, wipe: bool = False, config: settings.Settings | None = None) -> None:
    """End every process of the lab; ``wipe`` also removes its folder. Safe to repeat.

    Also when somebody removed the folder, or removes it meanwhile: its processes are then found by their arguments.
    """
    base.need_root("lab down")
    state = folder(name, config)
    if not state.is_dir():
        if not _end_leftovers(state, progress):
            progress(f"there is no lab {name} in {state.parent}")
        return
    with _held(state):
        try:
            _end_processes(state, progress)
        except FileNotFoundError:
            if state.is_dir() and spec.FILE in os.listdir(state):
                raise
            progress(f"somebody else removes {state}")
        _end_leftovers(state, progress)
        if wipe:
            _remove(state)
            progress(f"removed {state}")
    if wipe:
        (state.parent / f".{state.name}.lock").unlink(missing_ok=True)


def _end_processes(state: Path, progress: Progress) -> None:
    """By the pid files in the folder."""
    from lab import control_plane

    control_plane.stop(state, progress)
    homes = sorted((state / "nodes").iterdir()) if (state / "nodes").is_dir() else []
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        ended = list(pool.map(lambda home: nodes.power_off(state, home.name), homes))
    progress(f"{sum(ended)} of {len(homes)} nodes were on and are off now")


def _end_leftovers(state: Path, progress: Progress) -> int:
    """What no pid file names any more, and what lies outside the folder; the number of processes ended."""
    from lab import leftovers

    count = leftovers.end(state, progress)
    repository.end_agent(state)
    claims.release(state)
    return count


def _remove(state: Path) -> None:
    """The whole folder, also when another process removes it at the same time."""
    if os.path.ismount(state / "disks"):
        subprocess.run(["umount", str(state / "disks")], check=True)
    while state.exists():
        try:
            shutil.rmtree(state)
        except FileNotFoundError:
            continue  # an entry that the other one took first


def status(state: Path) -> Status:
    """What is true of the lab now. Raises `errors.InputError` for a lab that was never made."""
    found = spec.read(state)
    made = [node for node in found.nodes if (nodes.folder(state, node.name) / "machine" / "machine").is_file()]
    return Status(found, state, tuple(nodes.status(state, node) for node in made), state / "disks")
