"""CPU of the shipped probe on one lab node: all of it, and without the vendors' own programs.

The node is installed as its lock says, as an audit finds it; median of 15 runs of ``sh -s`` inside it, all descendants
counted. Needs root.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.rows import Row
from bringup import probe
from lab import base, nodes, testing
from lockstep.base import errors
from pinsets import components

__all__ = ["rows"]

RUNS = 15
OURS = ("host", "kernel", "boot", "serial", "packages", "holders", "module", "next_modules", "dkms", "libraries")
OURS += ("disks", "log", "nics", "cdi")
"""Commands that read files and databases of the system; the others start a program of a vendor or of a runtime."""


def rows(quick: bool = False) -> Iterator[Row]:
    """CPU seconds on the node; no peer."""
    base.need_root("lab up")
    others = [command.id for command in probe.COMMANDS if command.id not in OURS]
    with (
        tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder,
        testing.fresh_lab(Path(folder), nodes=1) as lab,
    ):
        done = lab.lockstep("bringup", str(lab.fleet_file))
        if done.returncode != 0:
            raise errors.EngineError(f"the node was not brought up: {done.stderr[-300:]}")
        for case, without in (("whole probe", []), ("without vendors' programs", others)):
            script = probe.script(components.load(), without=without)
            yield Row(case, "cpu", "s", statistics.median(_cpu(lab, script) for _ in range(3 if quick else RUNS)))


def _cpu(lab: testing.FreshLab, script: str) -> float:
    words = nodes.enter(lab.state, lab.nodes[0], ["sh", "-s"])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, input=script.encode(), stdout=subprocess.PIPE, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if b'{"done":' not in done.stdout:
        raise errors.EngineError("the probe did not end")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
