"""The fleet walks on the lab: a second `lockstep up` without change, `lockstep audit`, and one node's probe.

Fresh lab nodes with a control plane, brought into step by a first `lockstep up` that is not measured. ``cpu`` in s is
that of the whole command (for `up` the engine, its hosts and plugins too), without the nodes' own sshd and script;
``cpu`` in ms/host is the probe's script inside a node, with all it starts there, mean over the nodes; once as it is
and once without the vendors' programs. No peer.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from bench import preview, processes
from bench.rows import Row
from bringup import probe
from lab import base, nodes, testing
from lockstep.base import errors
from pinsets import components

__all__ = ["rows"]

CASES = (8,)
QUICK = (2,)
VENDORS = (
    *("toolkit", "container_cli", "containerd", "runc", "cri", "docker", "kubelet", "kubeadm", "fabricmanager"),
    *("nvlsm", "imex", "imex_domain", "dcgm", "smi", "nvlink", "dkms", "ofed", "mft", "ucx", "libfabric"),
)
"""Commands of the probe that are a vendor's program: what they cost is not ours."""
LOCKSTEP = Path(sys.executable).with_name("lockstep")


def rows(quick: bool = False) -> Iterator[Row]:
    """Per number of nodes: wall and CPU of `up` and `audit`, and the probe's CPU per node."""
    base.need_root("lab up")
    for count in QUICK if quick else CASES:
        with (
            tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder,
            testing.fresh_lab(Path(folder), nodes=count, control_plane=True) as lab,
        ):
            first = lab.lockstep("up", str(lab.fleet_file))
            if first.returncode != 0:
                raise errors.EngineError(f"the first `lockstep up` ended with {first.returncode}:\n{_end(first)}")
            for verb in ("up", "audit"):
                with _adopting():
                    found = preview.run([str(LOCKSTEP), verb, str(lab.fleet_file)], testing.CHECKOUT, lab.env)
                yield Row(f"{verb}, {count} nodes", "wall", "s", found.wall)
                yield Row(f"{verb}, {count} nodes", "cpu", "s", found.cpu)
            yield Row(f"probe, {count} nodes", "cpu", "ms/host", _probe_ms(lab, Path(folder)))
            own = _probe_ms(lab, Path(folder), without=VENDORS)
            yield Row(f"probe without vendor tools, {count} nodes", "cpu", "ms/host", own)


def _end(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stdout + done.stderr)[-2000:]


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Orphans of what we run become ours; only then, or the lab's nodes would be ours as well."""
    libc = ctypes.CDLL(None)
    libc.prctl(preview.SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(preview.SUBREAPER, 0, 0, 0, 0)


def _probe_ms(lab: testing.FreshLab, folder: Path, without: Collection[str] = ()) -> float:
    """CPU milliseconds of the script that a sweep feeds to a node's shell, entered by namespaces and not over SSH."""
    script = folder / "probe.sh"
    script.write_text(probe.script(components.load(), without=without))
    total = 0.0
    for node in lab.nodes:
        done = processes.measure(nodes.enter(lab.state, node, ["sh", "-s"]), stdin=script)
        if b'{"done":' not in done.output:
            raise errors.EngineError(f"the probe on {node} did not come to its end")
        total += done.cpu_seconds
    return total / len(lab.nodes) * 1000
