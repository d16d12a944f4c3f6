"""One lab node: its folder, disk and power. Namespaces, an overlay on the base tree, sshd under a small pid 1.

A node is no sandbox: its root is this machine's root behind namespaces (it may not set the clock, load modules
or write /proc/sys). Run in it what you would run here.

STATE/nodes/NAME/
    machine/        hardware (lab.hardware), also seen inside the node as /run/lockstep-lab/machine
    disk            link to the folder with the overlay's upper and work folders
    boot.env        what the node's init needs
    supervisor.pid  pid and token of the supervisor; pid1: pid and boot id, both as the host sees them
    console.log     what init and pid 1 said
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import hardware, liveness, marks, repository
from lab.spec import LabNode
from lockstep.base import errors

__all__ = ["NodeStatus", "alive", "enter", "install", "power_off", "power_on", "status", "wait_ready"]

READY_SECONDS = 120.0
"""A node answers in well under a second; 64 at once on two busy cores took 18 s."""
END_SECONDS = 60.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What is true of a node now."""

    node: LabNode
    power: bool
    boot_id: str | None
    """None while off."""
    ssh: str
    """``answers``, ``silent`` (accepts, says nothing) or ``refused``."""
    faults: tuple[marks.Kind, ...]
    """What `lab break` put into the node and still holds."""
    serial: str


folder = liveness.folder
alive = liveness.alive
_marked = liveness.marked


def pid1(state: Path, name: str) -> int | None:
    """Host pid of the node's pid 1; None while it is off."""
    found = _marked(folder(state, name) / "pid1")
    return found[0] if found else None


def starting(state: Path, name: str) -> bool:
    """Whether the node is on or about to be: its supervisor lives."""
    return _marked(folder(state, name) / "supervisor.pid") is not None


def boot_id(state: Path, name: str) -> str | None:
    """Boot id of the running node; None while it is off."""
    found = _marked(folder(state, name) / "pid1")
    return found[1] if found else None


@contextmanager
def _held(state: Path, name: str) -> Iterator[None]:
    """One act on a node's power at a time."""
    with (folder(state, name) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(state: Path, node: LabNode, disks: Path, *, client_key: str) -> str:
    """A machine with a freshly imaged disk in the node's slot; returns its host key as ``ssh-ed25519 BASE64``.

    ``disks`` is a folder whose file system can carry an overlay's upper layer. The node must be off.
    """
    home = folder(state, node.name)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "root").mkdir(exist_ok=True)
    hardware.install(node, state.name, home / "machine")
    return image(state, node, disks, client_key=client_key)


def image(state: Path, node: LabNode, disks: Path, *, client_key: str) -> str:
    """A fresh operating system on the node's disk; returns the new host key."""
    disk = disks / node.name
    if disk.exists():
        shutil.rmtree(disk)
    upper = disk / "upper"
    (disk / "work").mkdir(parents=True)
    upper.mkdir()
    upper.chmod(0o755)
    repo = state / "repository"
    _write(upper, "etc/hostname", f"{node.name}\n")
    _write(upper, "etc/hosts", f"127.0.0.1 localhost\n{node.address} {node.name}\n")
    _write(upper, "etc/machine-id", f"{uuid.uuid4().hex}\n")
    _write(upper, "root/.ssh/authorized_keys", client_key, mode=0o600)
    (upper / "root").chmod(0o700)
    (upper / "root/.ssh").chmod(0o700)
    _write(upper, repository.KEY_ON_NODE.lstrip("/"), (repo / "key.asc").read_text())
    _write(upper, repository.SOURCE_ON_NODE.lstrip("/"), repository.source_line(repo) + "\n")
    private, public = host_key_pair()
    _write(upper, "etc/ssh/ssh_host_ed25519_key", private, mode=0o600)
    _write(upper, "etc/ssh/ssh_host_ed25519_key.pub", f"{public} root@{node.name}\n")
    return public


def host_key_pair() -> tuple[str, str]:
    """A new ed25519 pair: (private in OpenSSH form, public as ``ssh-ed25519 BASE64``)."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode()


def _write(root: Path, name: str, text: str, *, mode: int = 0o644) -> None:
    path = root / name
    for parent in reversed(path.relative_to(root).parents[:-1]):
        if not (root / parent).is_dir():
            (root / parent).mkdir(mode=0o755)
            (root / parent).chmod(0o755)
    path.write_text(text)
    path.chmod(mode)


def power_on(state: Path, node: LabNode, lower: Sequence[Path], guest: Path, disks: Path) -> bool:
    """Start the node's supervisor unless it runs; True when it was started. Does not wait for sshd."""
    home = folder(state, node.name)
    with _held(state, node.name):
        # A supervisor without pid 1 is between two boots, or about to end: soon it is one of the two.
        _until(lambda: not _marked(home / "supervisor.pid") or _marked(home / "pid1"), "neither on nor off", home)
        if _marked(home / "supervisor.pid"):
            return False
        values = {
            "lower": ":".join(str(path) for path in lower),
            "disk": str(disks / node.name),
            "hostname": node.name,
            "address": node.address,
            "port": str(node.port),
            "repository": str(state / "repository"),
        }
        (home / "boot.env").write_text("".join(f"{key}={shlex.quote(value)}\n" for key, value in values.items()))
        token = uuid.uuid4().hex
        # What the last process left; a new one must not be taken for it.
        for left in ("supervisor.pid", "pid1"):
            (home / left).unlink(missing_ok=True)
        with (home / "console.log").open("ab") as log:
            # setsid --fork: it outlives this process on purpose, and is nobody's zombie when it ends.
            subprocess.run(
                ["setsid", "--fork", "/bin/sh", str(guest / "supervisor"), str(home), token],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env={"PATH": PATH, "LANG": "C.UTF-8"},
                check=True,
            )
        _until(lambda: _marked(home / "supervisor.pid"), "the supervisor did not start", home)
        return True


def power_off(state: Path, name: str) -> bool:
    """Hard power-off: True when the node was on. Returns when none of its processes is left."""
    home = folder(state, name)
    with _held(state, name):
        return _off(home)


def _off(home: Path) -> bool:
    supervisor, first = _marked(home / "supervisor.pid"), _marked(home / "pid1")
    if supervisor:
        # The supervisor leads its own session: the group is it, unshare and what init left in it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(supervisor[0], signal.SIGKILL)
    if first:
        with contextlib.suppress(ProcessLookupError):
            os.kill(first[0], signal.SIGKILL)
    if supervisor or first:
        gone = lambda: not _marked(home / "supervisor.pid") and not _marked(home / "pid1")  # noqa: E731
        _until(gone, "the node did not end", home)
    for left in ("supervisor.pid", "pid1"):
        (home / left).unlink(missing_ok=True)
    return bool(supervisor or first)


def _until(condition: Callable[[], object], failure: str, home: Path) -> None:
    limit = time.monotonic() + END_SECONDS
    while not condition():
        if time.monotonic() > limit:
            raise errors.EngineError(
                f"{failure} within {END_SECONDS:.0f} s", place=home.name, hint=f"see {home}/console.log"
            )
        time.sleep(0.005)


def wait_ready(state: Path, nodes: Sequence[LabNode]) -> Iterator[LabNode]:
    """Yields each node once its sshd has sent a banner. Raises `errors.EngineError` naming those that did not."""
    waiting = list(nodes)
    limit = time.monotonic() + READY_SECONDS
    while waiting:
        for node in list(waiting):
            if banner(node) == "answers":
                waiting.remove(node)
                yield node
            elif not _marked(folder(state, node.name) / "supervisor.pid"):
                raise errors.EngineError(
                    f"node {node.name} went down while booting:\n{_console(state, node.name)}",
                    place=f"{node.address}:{node.port}",
                )
        if waiting and time.monotonic() > limit:
            names = ", ".join(node.name for node in waiting)
            raise errors.EngineError(
                f"no SSH banner within {READY_SECONDS:.0f} s from {names}:\n{_console(state, waiting[0].name)}",
                hint="lockstep lab status",
            )
        if waiting:
            time.sleep(0.02)


def _console(state: Path, name: str) -> str:
    log = folder(state, name) / "console.log"
    text = log.read_text(errors="replace") if log.is_file() else ""
    return "\n".join(text.splitlines()[-5:]) or "(its console is empty)"


def banner(node: LabNode, seconds: float = 0.3) -> str:
    """``answers`` with an SSH banner, ``silent`` (accepts, says nothing within ``seconds``) or ``refused``."""
    try:
        with socket.create_connection((node.address, node.port), timeout=seconds) as connection:
            return "answers" if connection.recv(4) == b"SSH-" else "silent"
    except TimeoutError:
        return "silent"
    except OSError:
        return "refused"


def enter(state: Path, name: str, command: Sequence[str]) -> list[str]:
    """The argument list that runs ``command`` inside the node by its namespaces, not over SSH.

    Waits for a node that is booting. Raises `errors.RefusedError` for one that is off.
    """
    home = folder(state, name)
    _until(lambda: pid1(state, name) or not starting(state, name), "the node did not boot", home)
    pid = pid1(state, name)
    if pid is None:
        raise errors.RefusedError(f"node {name} is off", hint=f"lockstep lab power {name} on")
    # Init writes its pid only after that, so this holds at once; entering this machine's own root would be a disaster.
    _until(lambda: _has_own_root(pid), "the node's init did not reach its own root", home)
    clean = ["env", "-i", f"PATH={PATH}", "HOME=/root"]
    clean += ["LANG=C.UTF-8", f"TERM={os.environ.get('TERM', 'dumb')}"]
    spaces = ["--mount", "--uts", "--ipc", "--pid", "--root", "--wdns=/root"]
    if Path("/proc/self/ns/time").exists():
        spaces.append("--time")
    return ["nsenter", "--target", str(pid), *spaces, "--", *clean, *command]


def _has_own_root(pid: int) -> bool:
    """Whether the process sees another root folder than this one does."""
    try:
        return not os.path.samestat(os.stat(f"/proc/{pid}/root"), os.stat("/"))
    except (FileNotFoundError, ProcessLookupError):
        return False


def status(state: Path, node: LabNode) -> NodeStatus:
    """What is true of the node now; asks its sshd for a banner."""
    home = folder(state, node.name)
    first = _marked(home / "pid1")
    return NodeStatus(
        node=node,
        power=first is not None,
        boot_id=first[1] if first else None,
        ssh=banner(node),
        faults=marks.standing(state, node.name),
        serial=hardware.serial(home / "machine"),
    )
