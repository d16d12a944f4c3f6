"""How far each GPU is from its limits: one minus P95 over the limit, the worst dimension counts.

There are no weights: a GPU that is cool and idle on every bus but one has that one's
headroom. A dimension that is not measured here takes no part; temperature and power
always are, or the freshness gate is closed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from placement.telemetry.samples import Batch
from placement.telemetry.signals import Signal
from placement.telemetry.windows import Windows
from placement.topology import Topology

__all__ = ["LEVELS", "Headroom", "Limits", "used"]

IDLE_CELSIUS: Final = 25.0
"""Temperatures count from here: an idle GPU in cold air has all its headroom."""
LEVELS: Final = 10
"""Headroom is compared in tenths: sensors and a ten-minute P95 tell no more apart."""
AMPLE: Final = 3
"""From this many tenths on a GPU is not better for having more: packing decides."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where each signal has nothing left, for one accelerator model.

    Defaults: slowdown temperatures and power of H100 SXM (87 °C, 95 °C, 700 W), a 400 Gb/s
    NIC, PCIe 5.0 x16.
    """

    core_temperature: float = 87.0
    memory_temperature: float = 95.0
    power: float = 700.0
    hbm: float = 1.0
    nic: float = 50_000.0
    pcie: float = 63_000.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"limit {field.name} must be above zero")


def used(signal: Signal, value: float, limits: Limits) -> float:
    """Fraction of the limit that ``value`` uses; above 1 beyond it. `Signal.HEALTH` has none: 0."""
    if signal is Signal.CORE_TEMPERATURE:
        return (value - IDLE_CELSIUS) / (limits.core_temperature - IDLE_CELSIUS)
    if signal is Signal.MEMORY_TEMPERATURE:
        return (value - IDLE_CELSIUS) / (limits.memory_temperature - IDLE_CELSIUS)
    if signal is Signal.HEALTH:
        return 0.0
    limit: float = getattr(limits, signal.name.lower())
    return value / limit


class Headroom:
    """The windows of a fleet and the headroom that follows from them."""

    def __init__(self, topology: Topology, limits: Mapping[str, Limits] | None = None) -> None:
        per_model = [(limits or {}).get(model, Limits()) for model in topology.models]
        self._limits = [per_model[index] for index in topology.model.tolist()]
        self._shares = np.array([_line(limits) for limits in per_model])[topology.model]
        """(n, s, 2) value at which a signal uses nothing, and 1 over the way from there to the limit."""
        self._windows = Windows(topology.numa.shape)

    def push(self, node: int, gpu: int, signal: Signal, value: float, now: float) -> None:
        """Take in one sample that `samples.Samples.push` accepted."""
        if signal is not Signal.HEALTH:
            self._windows.push(node, gpu, signal, used(signal, value, self._limits[node]), now)

    def push_round(self, node: int, batch: Batch, now: float) -> None:
        """`push` for samples of one node at once."""
        measured = batch.signal != Signal.HEALTH
        kept = batch.only(measured)
        zero, scale = self._shares[node, kept.signal].T
        self._windows.push_round(node, kept.gpu, kept.signal, (kept.value - zero) * scale, now)

    def of_dimensions(self, now: float) -> NDArray[np.float64]:
        """(n, g, s) headroom per dimension, 0 to 1; NaN where it is not measured."""
        left: NDArray[np.float64] = np.clip(1.0 - self._windows.p95(now), 0.0, 1.0)
        return left

    def of_gpus(self, now: float, p95: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """(n, g) headroom of the worst measured dimension; 1 where nothing is measured.

        ``p95`` (n, g, s), in the signals' units, is what the aggregate path measured
        (`telemetry.prometheus.Aggregate.p95`): the worse of both paths counts.
        """
        found = self.of_dimensions(now)
        if p95 is not None:
            taken = (p95 - self._shares[:, None, :, 0]) * self._shares[:, None, :, 1]
            found = np.fmin(found, np.clip(1.0 - taken, 0.0, 1.0))
        worst: NDArray[np.float64] = np.where(np.isnan(found), 1.0, found).min(axis=2)
        return worst


def _line(limits: Limits) -> list[tuple[float, float]]:
    """Per signal the value that uses nothing, and the part of the limit that one unit more uses."""
    zero = {Signal.CORE_TEMPERATURE: IDLE_CELSIUS, Signal.MEMORY_TEMPERATURE: IDLE_CELSIUS}
    return [(zero.get(signal, 0.0), used(signal, zero.get(signal, 0.0) + 1.0, limits)) for signal in sorted(Signal)]


def level(headroom: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole tenths, `AMPLE` at most: what candidates are compared by."""
    result: NDArray[np.int64] = np.minimum((headroom * LEVELS + 1e-9).astype(np.int64), AMPLE)
    return result
