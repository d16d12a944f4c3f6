"""The aggregate path: one PromQL query per signal, P95 over the window computed by Prometheus itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import numpy as np
from numpy.typing import NDArray

from lockstep.base import errors
from placement.telemetry.samples import Dropped
from placement.telemetry.signals import Signal
from placement.topology import Topology

__all__ = ["QUERIES", "Aggregate", "Prometheus"]

QUERIES: Final[Mapping[Signal, str]] = {
    Signal.CORE_TEMPERATURE: "quantile_over_time(0.95, DCGM_FI_DEV_GPU_TEMP[{window}])",
    Signal.MEMORY_TEMPERATURE: "quantile_over_time(0.95, DCGM_FI_DEV_MEMORY_TEMP[{window}])",
    Signal.POWER: "quantile_over_time(0.95, DCGM_FI_DEV_POWER_USAGE[{window}])",
    Signal.HBM: (
        "quantile_over_time(0.95, (DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE))[{window}:30s])"
    ),
    Signal.PCIE: (
        "quantile_over_time(0.95, ((DCGM_FI_PROF_PCIE_TX_BYTES > DCGM_FI_PROF_PCIE_RX_BYTES)"
        " or DCGM_FI_PROF_PCIE_RX_BYTES)[{window}:30s]) / 1e6"
    ),
    Signal.NIC: (
        "label_replace(label_replace("
        "quantile_over_time(0.95, irate(node_infiniband_port_data_transmitted_bytes_total[2m])[{window}:30s]) / 1e6,"
        ' "Hostname", "$1", "instance", "([^:]+)(?::[0-9]+)?"), "rail", "$1", "device", ".*_([0-9]+)")'
    ),
}
"""Signal → query over dcgm-exporter's metrics; labels ``Hostname`` and ``gpu`` say which device.

Sent bytes per port come from node_exporter; the number in the device's name (``mlx5_3``) is
taken for the rail, and a rail's traffic counts for each GPU on it. PCIe needs the exporter's
profiling metrics, which its default list has commented out; what is not there stays unmeasured.
"""
BLANK: Final = 0x7FFFFFF0
"""DCGM's marks for "no value" begin here (INT32, INT64 and FP64 blanks): no measurement reaches it."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What one round of queries gave."""

    p95: NDArray[np.float64]
    """(n, g, s) in the signal's own unit; NaN where Prometheus has nothing."""
    dropped: Counter[Dropped]
    """Series that name no device of the fleet, or hold no number."""


class Prometheus:
    """Queries one server. ``client`` carries address, credentials and time limit."""

    def __init__(
        self, client: httpx.Client, topology: Topology, queries: Mapping[Signal, str] = QUERIES, window: str = "10m"
    ) -> None:
        self._client = client
        self._topology = topology
        self._queries = {signal: query.format(window=window) for signal, query in queries.items()}
        self._nodes = {name: index for index, name in enumerate(topology.names)}

    def read(self) -> Aggregate:
        """All signals. Raises `errors.NotMeasuredError` when the server does not answer or refuses a query."""
        p95 = np.full((*self._topology.numa.shape, len(Signal)), np.nan)
        dropped: Counter[Dropped] = Counter()
        for signal, query in self._queries.items():
            for series in self._query(query):
                self._take(series, signal, p95, dropped)
        return Aggregate(p95, dropped)

    def _query(self, query: str) -> list[Any]:
        try:
            answer = self._client.post("/api/v1/query", data={"query": query})
            body = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise errors.NotMeasuredError(f"Prometheus does not answer: {error}", place=query) from error
        if not isinstance(body, dict):
            raise errors.NotMeasuredError("Prometheus answers in another form", place=query)
        if answer.status_code != 200 or body.get("status") != "success":
            raise errors.NotMeasuredError(f"Prometheus refuses: {body.get('error', answer.status_code)}", place=query)
        try:
            result: list[Any] = list(body["data"]["result"])
        except (KeyError, TypeError) as error:
            raise errors.NotMeasuredError("Prometheus answers in another form", place=query) from error
        return result

    def _take(self, series: Any, signal: Signal, p95: NDArray[np.float64], dropped: Counter[Dropped]) -> None:
        try:
            labels, value = dict(series["metric"]), float(series["value"][1])
        except (KeyError, TypeError, ValueError, IndexError):
            dropped[Dropped.NOT_A_NUMBER] += 1
            return
        node = self._nodes.get(labels.get("Hostname", ""), -1)
        gpus = self._gpus(node, labels) if node >= 0 else []
        if not gpus:
            dropped[Dropped.UNKNOWN_DEVICE] += 1
        elif not math.isfinite(value) or abs(value) >= BLANK:
            dropped[Dropped.NOT_A_NUMBER] += 1
        else:
            p95[node, gpus, signal] = np.fmax(p95[node, gpus, signal], value)

    def _gpus(self, node: int, labels: Mapping[str, str]) -> list[int]:
        """The GPU that a series names, or those on the rail that it names."""
        rail, gpu = labels.get("rail", ""), labels.get("gpu", "")
        if rail.isdecimal():
            return np.flatnonzero(self._topology.rail[node] == int(rail)).tolist()
        known = gpu.isdecimal() and int(gpu) < self._topology.gpus[node]
        return [int(gpu)] if known else []
