"""Labs for tests and benchmarks: own fleet file, names and addresses, gone at the end even when the test is killed.

    with testing.fresh_lab(tmp_path, nodes=2) as lab:
        subprocess.run(["lockstep", "audit", str(lab.fleet_file)], env=lab.env)
        lab.break_node("t100-001", faults.Kind.GPU_LOST)

Each takes one of 127.90.100.0/24 … 127.90.199.0/24 under a file lock.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from inventory import load, model
from lab import claims, faults, labs, nodes, spec
from lockstep.base import errors, settings

__all__ = ["FreshLab", "LabPool", "fresh_lab"]

RANGES = range(100, 200)
CHECKOUT = Path(__file__).resolve().parents[1]
ALLOW_ALL = "install, drain, restart, reload, reset, reboot"


@dataclass(frozen=True, slots=True)
class LabPool:
    """One pool of a test's fleet."""

    name: str = "blackwell"
    nodes: int = 2
    spares: int = 0
    """The last ones of ``nodes`` that are spares."""
    sku: str = "lab-gb200"
    pinset: str = "2026-09-lab-gb200"
    domain: str | None = "r1"
    """None: every node is its own (no ``domain:`` in the file)."""
    state: str = "new"
    allow: str = ALLOW_ALL
    wait: str = "30m"
    budget: str = "100%"
    window: str = "always"
    generation: int = 1


@dataclass(frozen=True, slots=True)
class FreshLab:
    """A lab that belongs to one test."""

    name: str
    fleet_file: Path
    state: Path
    """The lab's whole state, its LOCKSTEP_STATE."""
    env: Mapping[str, str]
    """The whole environment for programs of the test: os.environ with our variables over it."""
    settings: settings.Settings
    pools: Mapping[str, tuple[str, ...]]
    """Pool → its node names, in order."""
    control_plane: bool
    log: list[str] = field(default_factory=list)
    """What `up` and `down` said."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node's name, in file order."""
        return tuple(name for names in self.pools.values() for name in names)

    @property
    def kubeconfig(self) -> Path:
        """Administrator's kubeconfig; there only with a control plane."""
        return self.state / "kubeconfig"

    def fleet(self) -> model.Fleet:
        """The fleet file as it is now."""
        return load.fleet(str(self.fleet_file), self.settings)

    def spec(self) -> spec.Spec:
        """The machines."""
        return spec.from_fleet(self.fleet())

    def up(self) -> labs.Status:
        """`lab up`; done already unless ``start=False`` was given."""
        owner = os.getpid()
        return labs.up(
            self.spec(), self.log.append, cluster=self.control_plane, config=self.settings, owner=owner, durable=False
        )

    def down(self, *, wipe: bool = False) -> None:
        """`lab down`."""
        labs.down(self.name, self.log.append, wipe=wipe, config=self.settings)

    def run(self, node: str, *command: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command inside the node, entered by its namespaces; a secret goes by ``stdin``: all can read arguments."""
        arguments = nodes.enter(self.state, node, list(command))
        done = subprocess.run(arguments, input=stdin, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise AssertionError(f"{command} on {node} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return done

    def ssh_arguments(self, node: str) -> list[str]:
        """The start of an OpenSSH command line to the node, host key verified."""
        machine = self.spec().node(node)
        options = {
            "UserKnownHostsFile": str(self.state / "known_hosts"),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "IdentitiesOnly": "yes",
            "ConnectTimeout": "5",
        }
        words = [f"-o{key}={value}" for key, value in options.items()]
        identity = str(self.state / "ssh" / "id_ed25519")
        return ["ssh", "-F", "/dev/null", "-i", identity, "-p", str(machine.port), *words, f"root@{machine.address}"]

    def ssh(self, node: str, script: str) -> subprocess.CompletedProcess[str]:
        """A script over a real SSH login."""
        return subprocess.run(
            [*self.ssh_arguments(node), script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )

    def lockstep(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line itself, with this lab's environment, in the checkout."""
        program = Path(sys.executable).with_name("lockstep")
        return subprocess.run([str(program), *arguments], env=self.env, capture_output=True, text=True, cwd=CHECKOUT)

    def break_node(self, node: str, kind: faults.Kind, **options: str) -> str:
        """`lab break`."""
        return faults.break_node(self.state, node, kind, **options)

    def mend_node(self, node: str) -> list[str]:
        """`lab mend`."""
        return faults.mend_node(self.state, node)

    def power_on(self, node: str) -> bool:
        """`lab power NODE on`."""
        return labs.power_on(self.state, node)

    def power_off(self, node: str) -> bool:
        """`lab power NODE off`."""
        return nodes.power_off(self.state, node)

    def reimage(self, node: str) -> str:
        """`lab reimage NODE`: the new host key."""
        return labs.reimage(self.state, node)

    def alive(self, node: str) -> bool:
        """Whether the node's pid 1 lives."""
        return nodes.alive(self.state, node)

    def boot_id(self, node: str) -> str | None:
        """Boot id of the running node."""
        return nodes.boot_id(self.state, node)


@contextmanager
def fresh_lab(
    tmp_path: Path,
    *,
    nodes: int = 2,
    spares: int = 0,
    pools: Sequence[LabPool] | None = None,
    control_plane: bool = False,
    start: bool = True,
    edit: Callable[[str], str] | None = None,
) -> Iterator[FreshLab]:
    """A lab of its own, started; torn down and removed at the end, also when this process is killed.

    ``nodes`` and ``spares`` make one GB200 pool; ``pools`` replaces them. ``edit`` may change the fleet file's
    text before anything is made. ``start=False`` makes files only: call `FreshLab.up`.
    """
    chosen = tuple(pools) if pools is not None else (LabPool(nodes=nodes, spares=spares),)
    with _range() as (number, lock):
        lab = _prepare(tmp_path, number, chosen, control_plane, edit)
        with _reaped(lab, lock):
            try:
                if start:
                    lab.up()
                yield lab
            finally:
                lab.down(wipe=True)


@contextmanager
def _range() -> Iterator[tuple[int, IO[str]]]:
    """A free 127.90.N.0/24 and the lock that holds it."""
    folder = claims.RUN / "ranges"
    folder.mkdir(parents=True, exist_ok=True)
    for number in RANGES:
        lock = (folder / str(number)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        with lock:
            yield number, lock
        return
    raise errors.BusyError("all hundred address ranges for tests are taken", hint="end some test runs")


def _prepare(
    tmp_path: Path, number: int, pools: Sequence[LabPool], control_plane: bool, edit: Callable[[str], str] | None
) -> FreshLab:
    name = f"t{number}"
    folder = tmp_path / "labs"
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / name
    fleet_file = tmp_path / f"{name}.yaml"
    text, names = _fleet_text(state, number, pools)
    fleet_file.write_text(edit(text) if edit else text)
    binaries = str(Path(sys.executable).parent)
    env = {
        **os.environ,
        "PATH": f"{binaries}:{os.environ.get('PATH', '')}",
        "LOCKSTEP_ROOT": str(CHECKOUT),
        "LOCKSTEP_LABS": str(folder),
        "LOCKSTEP_STATE": str(state),
        "KUBECONFIG": str(state / "kubeconfig"),
    }
    return FreshLab(name, fleet_file, state, env, settings.load(env, CHECKOUT), names, control_plane)


def _fleet_text(state: Path, number: int, pools: Sequence[LabPool]) -> tuple[str, dict[str, tuple[str, ...]]]:
    """The fleet file, and the node names by pool."""
    name = state.name
    home = f"$LOCKSTEP_LABS/{name}"
    lines = [
        f"fleet: {name}",
        "ssh:",
        "  user: root",
        f"  port: {spec.DEFAULT_PORT}",
        f"  identity: {{file: {home}/ssh/id_ed25519}}",
        f"  known_hosts: {home}/known_hosts",
        "repositories:",
        f'  - {{apt: "file:{home}/repository", suite: ./, key: {home}/repository/key.asc}}',
        "pools:",
    ]
    names: dict[str, tuple[str, ...]] = {}
    at = 0
    for pool in pools:
        made = [f"{name}-{at + count:03}" for count in range(1, pool.nodes + 1)]
        lines += _pool_lines(state, pool)
        for count, node in enumerate(made, start=1):
            entry = [f"slot: {pool.domain or pool.name}-u{count:02}", f"address: 127.90.{number}.{at + count}"]
            entry += [f"domain: {pool.domain}"] if pool.domain else []
            entry += ["spare: true"] if count > pool.nodes - pool.spares else []
            entry += [f"state: {pool.state}"]
            entry += [f"generation: {pool.generation}"] if pool.generation != 1 else []
            lines.append(f"      {node}: {{{', '.join(entry)}}}")
        at += pool.nodes
        names[pool.name] = tuple(made)
    return "\n".join(lines) + "\n", names


def _pool_lines(state: Path, pool: LabPool) -> list[str]:
    program = Path(sys.executable).with_name("lockstep")
    policy = f"allow: [{pool.allow}], wait: {pool.wait}, window: {pool.window}, budget: {pool.budget}"
    return [
        f"  - name: {pool.name}",
        f"    sku: {pool.sku}",
        "    os: debian-12-amd64",
        f"    pinset: {pool.pinset}",
        f"    disruption: {{{policy}}}",
        "    bmc:",
        "      driver: command",
        f'      on: [{program}, lab, power, "{{node}}", "on", --lab, {state}]',
        f'      off: [{program}, lab, power, "{{node}}", "off", --lab, {state}]',
        f'      state: [{program}, lab, power, "{{node}}", state, --lab, {state}]',
        f'      reimage: [{program}, lab, reimage, "{{node}}", --lab, {state}]',
        "    nodes:",
    ]


@contextmanager
def _reaped(lab: FreshLab, lock: IO[str]) -> Iterator[None]:
    """A small process outside our session that tears the lab down when this process is gone, however it went.

    It waits for the end of a pipe that only we hold, and keeps the address range's lock until it is done.
    """
    shell = shutil.which("sh") or "/bin/sh"
    reaper = subprocess.Popen(
        [shell, "-c", 'cat >/dev/null; exec "$@"', "sh", sys.executable, "-m", "lab.reaper", str(lab.state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=CHECKOUT,
        pass_fds=(lock.fileno(),),
    )
    assert reaper.stdin is not None  # noqa: S101 - asked for above
    try:
        yield
    finally:
        reaper.stdin.close()
        reaper.wait()
