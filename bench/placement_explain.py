"""`lockstep place explain` on 1,008 nodes (56 NVL72 domains), generated and from a fleet file: median of five."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import processes
from bench.rows import Row

__all__ = ["fleet_text", "rows"]

RUNS = 5
DOMAINS = 56
LOCKSTEP = Path(sys.executable).with_name("lockstep")
REQUEST = {"name": "train", "need": "same-domain", "members": [{"gpus": 4, "count": 16}]}
HEAD = """\
fleet: thousand
pools:
  - name: pool
    sku: lab-gb200
    os: debian-12-amd64
    pinset: 2026-09-lab-gb200
    sources: [ssh]
    disruption: {allow: [install], wait: 30m, window: always, budget: 10%}
    nodes:
"""


def rows(quick: bool = False) -> Iterator[Row]:
    """Two cases; no peer does this work."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "request.json").write_text(json.dumps(REQUEST))
        (folder / "fleet.yaml").write_text(fleet_text(DOMAINS))
        for case, fleet in (("generated", ["--nvl72", str(DOMAINS)]), ("fleet file", [str(folder / "fleet.yaml")])):
            command = [str(LOCKSTEP), "place", "explain", *fleet, "--request", str(folder / "request.json")]
            runs = [processes.measure(command) for _ in range(RUNS)]
            yield Row(f"1,008 nodes, {case}", "cpu", "s", statistics.median(run.cpu_seconds for run in runs))
            yield Row(f"1,008 nodes, {case}", "wall", "s", statistics.median(run.wall_seconds for run in runs))


def fleet_text(domains: int) -> str:
    """A fleet file of ``domains`` NVL72 racks."""
    nodes = "".join(
        f'      n{number:02d}-[01-18]: {{slot: "r{number:02d}-u[01-18]", address: "127.91.{number}.[1-18]",'
        f" domain: r{number:02d}}}\n"
        for number in range(1, domains + 1)
    )
    return HEAD + nodes
