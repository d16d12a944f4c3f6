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
}
"""Signal → query over dcgm-exporter's metrics; labels ``Hostname`` and ``gpu`` say which device."""


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
        if answer.status_code != 200 or body.get("status") != "success":
            raise errors.NotMeasuredError(f"Prometheus refuses: {body.get('error', answer.status_code)}", place=query)
        result: list[Any] = body["data"]["result"]
        return result

    def _take(self, series: Any, signal: Signal, p95: NDArray[np.float64], dropped: Counter[Dropped]) -> None:
        labels = series.get("metric", {})
        node = self._nodes.get(labels.get("Hostname", ""), -1)
        gpu = labels.get("gpu", "")
        if node < 0 or not gpu.isdecimal() or int(gpu) >= self._topology.gpus[node]:
            dropped[Dropped.UNKNOWN_DEVICE] += 1
            return
        value = float(series["value"][1])
        if not math.isfinite(value):
            dropped[Dropped.NOT_A_NUMBER] += 1
            return
        p95[node, int(gpu), signal] = value
