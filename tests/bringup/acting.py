"""What tests of acting share: runs of the command line that are watched and killed, and questions to a lab's nodes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.testing import CHECKOUT, FreshLab
from lockstep.base import journal
from lockstep.base.journal.values import Owner

LONG = 1500.0
"""Until a line must have come; only reached when something is broken."""


@dataclass
class Run:
    """A command line that runs, with what it said so far."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, *words: str) -> str:
        """The first line with all of ``words``; fails when the program ends before it says so."""
        deadline = time.monotonic() + LONG
        seen = 0
        with self._changed:
            while True:
                for line in self.lines[seen:]:
                    if all(word in line for word in words):
                        return line
                seen = len(self.lines)
                ended = self.process.poll() is not None
                assert not ended, f"it ended with {self.process.returncode} before {words}:\n" + "\n".join(self.lines)
                assert time.monotonic() < deadline, f"no line with {words}:\n" + "\n".join(self.lines)
                self._changed.wait(0.5)

    def kill(self) -> None:
        """SIGKILL, and wait until everything it had started is gone too."""
        below = descendants(self.process.pid)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + LONG
        while left := [pid for pid in below if alive(pid)]:
            assert time.monotonic() < deadline, f"processes outlive the run: {[command(pid) for pid, _ in left]}"
            time.sleep(0.1)

    def listen(self) -> None:
        """Take in what it says."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()


@contextlib.contextmanager
def running(lab: FreshLab, *arguments: str) -> Iterator[Run]:
    """`lockstep ARGUMENTS` in the background; ended at the end of the block."""
    program = Path(sys.executable).with_name("lockstep")
    process = subprocess.Popen(
        [str(program), *arguments],
        env=dict(lab.env),
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    run = Run(process)
    listener = threading.Thread(target=run.listen, daemon=True)
    listener.start()
    try:
        yield run
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
        listener.join(10)
        if process.stdout is not None:
            process.stdout.close()


def descendants(root: int) -> list[tuple[int, str]]:
    """(pid, start time) of everything below a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return [(pid, started(pid)) for pid in found]


def started(pid: int) -> str:
    """Start time in ticks; empty when it is gone or a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]


def alive(process: tuple[int, str]) -> bool:
    """Whether that very process still runs."""
    return bool(process[1]) and started(process[0]) == process[1]


def command(pid: int) -> str:
    """Its command line, for messages."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return "?"


def bringup(lab: FreshLab, *options: str) -> subprocess.CompletedProcess[str]:
    """`lockstep bringup` of the lab's fleet."""
    return lab.lockstep("bringup", str(lab.fleet_file), *options)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Everything a run said, for messages of assertions."""
    return f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"


def admission(lab: FreshLab, node: str) -> dict[str, Any] | None:
    """The node's admission file; None when there is none."""
    done = lab.run(node, "cat", "/var/lib/lockstep/admission.json", check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def boots(lab: FreshLab) -> dict[str, str | None]:
    """Boot id of every node."""
    return {node: lab.boot_id(node) for node in lab.nodes}


def package(lab: FreshLab, node: str, name: str) -> str:
    """State and version of a package on a node, such as ``hi 580.105.08-1``."""
    return lab.run(node, "dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Version}", name, check=False).stdout


@contextlib.contextmanager
def book(lab: FreshLab) -> Iterator[journal.Journal]:
    """The lab's journal."""
    with journal.Journal(lab.state / "journal.db", lab.name) as opened:
        yield opened


def forget(lab: FreshLab) -> None:
    """Move the journal away, as on a fresh clone."""
    for suffix in ("", "-wal", "-shm"):
        file = lab.state / f"journal.db{suffix}"
        if file.exists():
            file.rename(lab.state / f"kept.db{suffix}")


def edit_fleet(lab: FreshLab, change: Callable[[str], str]) -> None:
    """Change the fleet file's text."""
    text = lab.fleet_file.read_text()
    new = change(text)
    assert new != text
    lab.fleet_file.write_text(new)


@contextlib.contextmanager
def gpu_held(lab: FreshLab, node: str) -> Iterator[None]:
    """A process in the node that holds a GPU, as a job does."""
    from lab import nodes

    script = "exec 3</dev/nvidia0; echo held; exec sleep 3600"
    arguments = nodes.enter(lab.state, node, ["sh", "-c", script])
    job = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "held\n"
        yield
    finally:
        for pid, _ in descendants(job.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.kill()
        job.wait()
        if job.stdout is not None:
            job.stdout.close()


def left_in_memory() -> list[str]:
    """Private folders of Ansible runs whose process is gone, and that nothing removes any more."""
    # A run that was killed just now, here or by another test, is still being cleaned up by its child.
    deadline = time.monotonic() + 30
    while (found := _folders_of_the_dead()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def _folders_of_the_dead() -> list[str]:
    here = Owner.this_process()
    found = []
    for folder in Path("/dev/shm").glob("lockstep-ansible-*"):
        pid, started_at = folder.name.split("-")[2:4]
        owner = Owner(here.host, here.machine, here.boot_id, here.namespace, int(pid), started_at)
        if owner.is_dead_here():
            found.append(folder.name)
    return found
