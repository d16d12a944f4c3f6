"""A real lab and a copy of the checkout, worked on by `lockstep` and plain `pulumi`, and what is seen meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from lab import testing
from lockstep.base import programs
from tests.bringup import acting

LOCKSTEP = Path(sys.executable).with_name("lockstep")
MINUTES = 60.0
SAMPLE_SECONDS = 0.05
"""Between two looks at the machine's processes: an Ansible task or an `ssh` lasts longer."""

KINDS = "namespaces,deviceclasses,customresourcedefinitions"
"""Kinds whose deletion would delete other people's objects."""


@dataclass
class Environment:
    """A lab, and a copy of the checkout whose stack files belong to the test."""

    lab: testing.FreshLab
    checkout: Path
    variables: dict[str, str]
    fleet: str

    def start(self, *command: str | Path, **more: str) -> subprocess.Popen[str]:
        """Start a program in the checkout."""
        return subprocess.Popen(
            [str(word) for word in command],
            env={**self.variables, **more},
            cwd=self.checkout,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str | Path, expect: int | None = 0, **more: str) -> str:
        """Run it to its end; its output. ``expect`` None: any exit code but 0."""
        process = self.start(*command, **more)
        output, _ = process.communicate(timeout=15 * MINUTES)
        assert process.returncode == expect or (expect is None and process.returncode != 0), (
            f"exit {process.returncode}\n{output}"
        )
        return output

    def up(self, *words: str, expect: int = 0) -> str:
        """`lockstep up` of the fleet."""
        return self.run(LOCKSTEP, "up", self.fleet, *words, expect=expect)

    def shell(self, words: str) -> tuple[str, ...]:
        """The command line of plain `pulumi WORDS` after `lockstep env`, as the README says; none where that fails."""
        script = (
            f'values="$({shlex.quote(str(LOCKSTEP))} env {shlex.quote(self.fleet)})" && eval "$values" &&'
            f" exec pulumi --non-interactive --color never {words}"
        )
        return ("bash", "-c", script)

    def plain(self, words: str, expect: int | None = 0, **more: str) -> str:
        """Run plain `pulumi`; its output."""
        return self.run(*self.shell(words), expect=expect, **more)

    def audit(self, expect: int = 0) -> dict[str, dict[str, Any]]:
        """Node → its part of `lockstep audit --format json`; each finding of it under ``findings``."""
        process = subprocess.run(
            [LOCKSTEP, "audit", self.fleet, "--format", "json"],
            env=self.variables,
            cwd=self.checkout,
            capture_output=True,
            text=True,
        )
        assert process.returncode == expect, process.stdout + process.stderr
        found: dict[str, dict[str, Any]] = {}
        for pool in json.loads(process.stdout)["pools"]:
            for node in pool["nodes"]:
                own = [finding for finding in pool["findings"] if node["name"] in finding["nodes"]]
                found[node["name"]] = {**node, "findings": own}
        return found

    def objects(self, kinds: str) -> list[dict[str, Any]]:
        """Objects of the cluster."""
        command = [str(programs.find("kubectl")), f"--kubeconfig={self.lab.kubeconfig}", "get", kinds, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        items: list[dict[str, Any]] = json.loads(done.stdout)["items"]
        return items

    def machines(self) -> dict[str, object]:
        """What a run that touches nothing leaves as it is: boots, packages and their holds, admission files, Nodes."""
        found: dict[str, object] = {}
        for node in self.lab.nodes:
            script = "dpkg-query -W; apt-mark showhold; cat /var/lib/lockstep/admission.json"
            found[node] = self.lab.boot_id(node), self.lab.run(node, "sh", "-c", script).stdout
        for one in self.objects("nodes"):
            head = one["metadata"]
            marks = head["uid"], head["labels"], _ours(head["annotations"]), one["spec"].get("taints")
            found[f"Node {head['name']}"] = marks
        return found

    def kept(self) -> dict[str, str]:
        """``Kind/name`` → uid of cluster-wide objects of ours that nothing may delete."""
        return {
            f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["uid"]
            for one in self.objects(KINDS)
            if one["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "lockstep"
        }

    def exported(self) -> str:
        """`pulumi stack export`."""
        return self.plain(f"stack export -s {self.lab.name}")


def _ours(annotations: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in annotations.items() if name.startswith("lockstep.dev/")}


@dataclass
class Watch:
    """While it is entered: the arguments of every process of this machine, and every boot of the lab's nodes."""

    lab: testing.FreshLab
    arguments: set[bytes] = field(default_factory=set)
    boots: dict[str, set[str]] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self._ending.clear()
        self._look()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        assert self._thread is not None
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ending.wait(SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal():
                # Gone since it was listed.
                with contextlib.suppress(OSError):
                    self.arguments.add(Path(entry.path, "cmdline").read_bytes())
        for node in self.lab.nodes:
            boot = self.lab.boot_id(node)
            if boot is not None:
                self.boots.setdefault(node, set()).add(boot)


def wait_until(what: str, done: Callable[[], object], seconds: float = 5 * MINUTES) -> None:
    """Until ``done()`` is true."""
    limit = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < limit, f"{what} did not happen"
        time.sleep(0.1)


def engine_of(parent: int) -> int:
    """The pid of the engine that runs `up` below a `lockstep up`."""
    limit = time.monotonic() + MINUTES
    while time.monotonic() < limit:
        for pid, _ in acting.descendants(parent):
            words = acting.command(pid).split(" ")
            if "up" in words and Path(words[0]).name == "pulumi":
                return pid
        time.sleep(0.05)
    raise AssertionError("no engine was started")


def acting_below(engine: int) -> list[tuple[int, str]]:
    """(pid, start time) of the engine, of our plugin and of all that acts on machines below it.

    Without the engine's own language host: it looks for its engine every five minutes only, and does nothing without
    its calls.
    """
    names = ("stacks.provider", "pulumi-resource-kubernetes")
    below = [(one, acting.command(one[0])) for one in acting.descendants(engine)]
    plugins = [one for one, command in below if any(name in command for name in names)]
    assert any("stacks.provider" in command for _, command in below), "the engine has not started our plugin yet"
    return [(engine, acting.started(engine)), *plugins, *(one for pid, _ in plugins for one in acting.descendants(pid))]


def kill(engine: int) -> None:
    """SIGKILL to an engine, and wait until what acts on machines below it is gone as well."""
    below = acting_below(engine)
    os.kill(engine, signal.SIGKILL)
    gone(below)


def gone(processes: list[tuple[int, str]]) -> None:
    """Wait until these processes are gone; fails with the command lines of those that stay."""
    limit = time.monotonic() + MINUTES
    while left := [acting.command(pid) for pid, begun in processes if acting.alive((pid, begun))]:
        assert time.monotonic() < limit, f"they outlive it: {left}"
        time.sleep(0.1)
