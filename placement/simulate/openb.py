"""Alibaba's openb traces (cluster-trace-gpu-v2023): nodes and pods as CSV, plain or gzip.

The traces are read where they lie (``--traces DIR``) and are no part of this repository.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

from lockstep.base import errors
from placement import topology
from placement.tasks import Task

__all__ = ["NODES", "Published", "Trace", "load_fleet", "load_trace", "published", "trace_names"]

NODES = "openb_node_list_gpu_node.csv"
PREFIX, SUFFIX = "openb_pod_list_", ".csv"
SUMMARY = "published_summary.csv"


@dataclass(frozen=True, slots=True)
class Trace:
    """Pods in name order, as the published experiment starts from."""

    name: str
    tasks: tuple[Task, ...]
    arrivals: tuple[float, ...]
    """Creation time of each pod in seconds; empty where the file has none."""
    departures: tuple[float, ...]
    """Deletion time of each pod in seconds; empty where the file has none."""


@dataclass(frozen=True, slots=True)
class Published:
    """One row of the published results."""

    mean: float
    """% of GPUs allocated, mean of ten runs."""
    deviation: float
    """Sample standard deviation of the ten runs."""


def trace_names(folder: Path) -> list[str]:
    """Names of the traces in ``folder``, sorted. Raises `errors.InputError` if there is none."""
    names = sorted(
        path.name.removesuffix(".gz").removeprefix(PREFIX).removesuffix(SUFFIX)
        for path in folder.glob(f"{PREFIX}*{SUFFIX}*")
    )
    if not names:
        raise errors.InputError(f"no {PREFIX}*{SUFFIX} in {folder}", place="--traces")
    return names


def load_fleet(folder: Path) -> topology.Topology:
    """The trace's GPU nodes; every node is its own domain. Raises `errors.InputError` naming file and line."""
    specs = []
    for line, row in _rows(folder / NODES):
        try:
            specs.append(
                topology.NodeSpec(
                    row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"]
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise errors.InputError(f"not a node: {error}", place=f"{NODES}:{line}") from error
    return topology.build(specs)


def load_trace(folder: Path, name: str) -> Trace:
    """One pod list. Raises `errors.InputError` naming file and line, field and unit."""
    path = folder / f"{PREFIX}{name}{SUFFIX}"
    rows = sorted(_rows(path), key=lambda item: item[1].get("name", ""))
    tasks, arrivals, departures = [], [], []
    for line, row in rows:
        try:
            tasks.append(_task(row))
            if row.get("deletion_time"):
                arrivals.append(float(row["creation_time"]))
                departures.append(float(row["deletion_time"]))
        except (KeyError, TypeError, ValueError) as error:
            raise errors.InputError(f"not a pod: {error}", place=f"{path.name}:{line}") from error
    if not any(task.demand for task in tasks):
        raise errors.InputError("no pod asks for a GPU: the fleet would never be full", place=path.name)
    whole = len(departures) == len(tasks)
    return Trace(name, tuple(tasks), tuple(arrivals) if whole else (), tuple(departures) if whole else ())


def _task(row: dict[str, str]) -> Task:
    models = frozenset(filter(None, (row.get("gpu_spec") or "").split("|")))
    gpus = int(row["num_gpu"])
    return Task(
        cpu=int(row["cpu_milli"]),
        memory=int(row.get("memory_mib") or 0),
        gpus=gpus,
        share=int(row["gpu_milli"]) if gpus else 0,
        models=models if gpus else frozenset(),
    )


def published(folder: Path, policy: str = "FGD", percent: int = 100) -> dict[str, Published]:
    """Trace → published allocation of ``policy`` when ``percent`` of capacity has arrived; empty without the file."""
    path = folder / SUMMARY
    if not path.is_file():
        return {}
    return {
        row["trace"]: Published(float(row["alloc_mean"]), float(row["alloc_sd"]))
        for _, row in _rows(path)
        if row["policy"] == policy and row["arrived_pct"] == str(percent)
    }


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """(line number, row) of a CSV file or of its gzip."""
    packed = path.with_name(f"{path.name}.gz")
    try:
        text = (path.read_bytes() if path.is_file() else gzip.decompress(packed.read_bytes())).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise errors.InputError(f"cannot be read: {error}", place=str(path)) from error
    return list(enumerate(csv.DictReader(text.splitlines()), start=2))
