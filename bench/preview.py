"""`pulumi preview` over stored snapshots: our one resource per pool against one `pulumi.dynamic` resource per node.

Each case is a fleet of one pool of HGX nodes (8 GPUs), all in step but five. The stack is made
by an `up` over a snapshot in which all are in step (no machine is touched); measured is the
preview that finds the five. CPU is that of the whole process tree: the engine, the language
host, the program and the plugin. ``state`` is the exported stack without its indentation,
``rss`` the largest sum over the tree that was seen, four times a second.
"""

from __future__ import annotations

import abc
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.rows import Row
from inventory import load as fleets
from inventory import model
from lockstep.base import errors, programs, settings
from lockstep.base.names import NodeName
from pinsets import load, snapshots
from pinsets.facts import Coordinate, Fact, Layer, NodeFacts, Snapshot, Version
from pinsets.model import Lock
from stacks import exports

__all__ = ["SUBREAPER", "rows", "run"]

CASES = (100, 1_000, 10_000, 100_000)
QUICK = (100, 1_000)
PEER_LIMIT = 1_000
"""Beyond it one resource per node takes minutes, and says nothing new."""
ODD = 5
"""Nodes out of step."""
PEER = "pulumi.dynamic"
ROOT = Path(__file__).resolve().parents[1]
PEER_PROGRAM = Path(__file__).with_name("preview_peer.py")
SUBREAPER = 36
"""prctl(2): descendants whose parent ends become ours, so that their CPU time is counted too."""
SAMPLE_SECONDS = 0.25

FLEET = """\
fleet: bench
pools:
  - name: hopper
    sku: lab-b300
    os: debian-12-amd64
    pinset: 2026-09-lab-b300
    nodes:
      {nodes}: {{slot: "{slots}", address: "{addresses}"}}
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a program and all that it started."""

    cpu: float
    """Seconds, user and system."""
    wall: float
    """Seconds."""
    rss: float
    """MB."""
    output: str


def rows(quick: bool = False) -> Iterator[Row]:
    """The rows of every case, each as soon as it is measured."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    for count in QUICK if quick else CASES:
        ours = _Ours(count).measure()
        peer = _Peer(count).measure() if count <= PEER_LIMIT else None
        for what, unit in (("cpu", "s"), ("wall", "s"), ("rss", "MB"), ("state", "MB")):
            yield Row(str(count), what, unit, ours[what], peer[what] if peer else None, PEER if peer else None)


class _Case(abc.ABC):
    """A project with a stack of its own, in a temporary folder."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.folder = Path(tempfile.mkdtemp(prefix="lockstep-bench-"))
        self.root = self.folder / "checkout"
        self.root.mkdir()

    def measure(self) -> dict[str, float]:
        """What → value, of the preview that finds the odd nodes."""
        try:
            self.prepare()
            self.pulumi("stack", "init", "bench")
            self.write_facts(odd=0)
            self.pulumi("up", "--yes", "--skip-preview")
            state = json.loads(self.pulumi("stack", "export").output)
            self.write_facts(odd=ODD)
            found = self.pulumi("preview", "--diff", *self.refresh)
            named = sum(f"gpu-{number:06d}" in found.output for number in range(1, ODD + 1))
            if named != ODD:
                raise errors.EngineError(f"the preview named {named} of {ODD} odd nodes:\n{found.output[-2000:]}")
            size = len(json.dumps(state, separators=(",", ":"))) / 1e6
            return {"cpu": found.cpu, "wall": found.wall, "rss": found.rss, "state": size}
        finally:
            shutil.rmtree(self.folder)

    refresh: Sequence[str] = ()

    @abc.abstractmethod
    def prepare(self) -> None:
        """Write the project."""

    @abc.abstractmethod
    def write_facts(self, odd: int) -> None:
        """Write what the next run finds."""

    def pulumi(self, *words: str) -> Measured:
        """Run the engine on the case's stack."""
        where = settings.load({**os.environ, "LOCKSTEP_ROOT": str(ROOT)})
        values = exports.variables(exports.Place(self.folder / "state", {}, fixed=True), where, os.environ)
        folders = [str(self.folder / "bin"), str(programs.find("pulumi").parent), values["PATH"]]
        more = {
            "PATH": os.pathsep.join(folders),
            "PULUMI_STACK": "bench",
            "FACTS": str(self.facts),
            "LOCKSTEP_FACTS": str(self.facts),
        }
        own = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "KUBECONFIG"))}
        command = [str(programs.find("pulumi")), "--non-interactive", "--color", "never", *words]
        return run(command, self.root, {**own, **values, **more})

    @property
    def facts(self) -> Path:
        """The stored snapshot."""
        return self.folder / "facts.jsonl.gz"


class _Ours(_Case):
    def prepare(self) -> None:
        for name in ("Pulumi.yaml", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root)
        for name in ("stacks", "inventory"):
            shutil.copytree(
                ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__", "Pulumi.*.yaml")
            )
        for name in ("tools", ".venv", "pinsets"):
            (self.root / name).symlink_to(ROOT / name)
        last = self.count
        # Three dimensions of addresses, in the order of the names.
        third, fourth = (last // 100 or 1), min(last, 100)
        second = max(1, third // 100)
        addresses = f"10.[0-{second - 1}].[0-{third // second - 1}].[1-{fourth}]"
        text = FLEET.format(nodes=f"gpu-[000001-{last:06d}]", slots=f"s[000001-{last:06d}]", addresses=addresses)
        (self.root / "inventory" / "fleets" / "bench.yaml").write_text(text)

    def write_facts(self, odd: int) -> None:
        where = settings.load({"LOCKSTEP_ROOT": str(self.root)})
        fleet = fleets.fleet(str(self.root / "inventory" / "fleets" / "bench.yaml"), where)
        snapshots.write(self.facts, snapshot(fleet.pools[0], load.fleet_locks(fleet)[fleet.pools[0].name], odd))


class _Peer(_Case):
    refresh = ("--refresh",)

    @property
    def facts(self) -> Path:
        """Node → driver that runs: a plain map, cheaper to read than a snapshot."""
        return self.folder / "facts.json"

    def prepare(self) -> None:
        (self.root / "Pulumi.yaml").write_text("name: peer\nruntime: {name: python}\n")
        shutil.copy(PEER_PROGRAM, self.root / "__main__.py")
        # What an official engine has beside it: the host of dynamic resources, in the activated environment.
        host = self.folder / "bin" / "pulumi-resource-pulumi-python"
        host.parent.mkdir()
        host.write_text('#!/bin/sh\nexec python -u -m pulumi.dynamic "$@"\n')
        host.chmod(0o755)

    def write_facts(self, odd: int) -> None:
        names = [f"gpu-{number:06d}" for number in range(1, self.count + 1)]
        drivers = {name: "580.126.20" if index < odd else "580.105.08" for index, name in enumerate(names)}
        self.facts.write_text(json.dumps(drivers))


def snapshot(pool: model.Pool, lock: Lock, odd: int) -> Snapshot:
    """Facts of a pool as its lock wants them; the first ``odd`` nodes run another driver."""
    now = time.time()
    fine = {where: _fact(where, pin.version) for where, pin in lock.coordinates({"gpu": pool.sku.slots("gpu")}).items()}
    driver = next(where for where in fine if where.component == "driver" and where.layer is Layer.RUNNING)
    wrong = {**fine, driver: _fact(driver, "580.126.20")}
    seen = ",".join(pool.sku.slots("gpu"))
    admission: Mapping[str, object] = {"lock": lock.full, "job": lock.job, "generation": 1}
    nodes: dict[NodeName, NodeFacts] = {}
    for index, node in enumerate(pool.nodes):
        nodes[node.name] = NodeFacts(
            node.name,
            now,
            wrong if index < odd else fine,
            boot_id=f"{index:08x}-0000-4000-8000-000000000000",
            serial=f"SN{index:08d}",
            busy=(),
            admission=admission,
            attributes={"gpus": seen, "machine": "HGX B300", "os.name": "debian-12-amd64"},
        )
    return Snapshot(now, nodes)


def _fact(where: Coordinate, version: str) -> Fact:
    return Fact(where, Version(version, version), "bench")


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Measured:
    """Run it and count every descendant, also those that outlive their parent: set SUBREAPER before.

    Raises `errors.EngineError` with the output's end when it ends with another status than 0.
    """
    others = _children(os.getpid())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak = _Peak(process.pid)
    output, problems = process.communicate()
    wall = time.monotonic() - started
    peak.stop()
    _reap(others)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0:
        raise errors.EngineError(f"{' '.join(command)} ended with {process.returncode}:\n{(problems + output)[-4000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(cpu, wall, peak.bytes / 1e6, output)


def _reap(others: frozenset[int]) -> None:
    """Wait for what the engine left to us, so that its time counts to this run; ``others`` are children of old."""
    limit = time.monotonic() + 10
    while left := _children(os.getpid()) - others:
        if time.monotonic() > limit:
            print("a process of the engine did not end; its CPU time is not counted", file=sys.stderr)
            return
        for pid in left:
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)


class _Peak:
    """The largest sum of resident memory over a process and its descendants."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watching."""
        self._ending.set()
        self._thread.join()

    def _watch(self) -> None:
        page = resource.getpagesize()
        while not self._ending.wait(SAMPLE_SECONDS):
            total = sum(_resident(pid) for pid in _tree(self._pid)) * page
            self.bytes = max(self.bytes, total)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in _children(pid):
        yield from _tree(child)


def _children(pid: int) -> frozenset[int]:
    found: list[str] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += children.read_text().split()
        except OSError:
            continue
    return frozenset(map(int, found))


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
