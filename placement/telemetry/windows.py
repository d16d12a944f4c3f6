"""P95 over a sliding window for every GPU and signal: fixed bins, two half windows that take turns.

The sketch: a sample is a used fraction of its limit, counted in one of `BINS` bins of
`WIDTH` each. The older half is dropped whole when the newer one is full, so a quantile
covers between one half and one whole window. It is reported as its bin's upper edge: never
too low, too high by at most `WIDTH` (2.5 % of the limit). Two bytes per bin: 192 bytes per
GPU and signal, one addition per sample.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from placement.telemetry.signals import Signal

__all__ = ["BINS", "WIDTH", "Windows"]

BINS: Final = 48
WIDTH: Final = 0.025
QUANTILE: Final = 0.95
WINDOW_SECONDS: Final = 600.0
"""Long enough for several steps of a job, short enough to follow a rack that warms up."""


class Windows:
    """Counts per (node, GPU, signal, bin), and the P95 of what changed."""

    def __init__(self, shape: tuple[int, ...], window: float = WINDOW_SECONDS) -> None:
        self._counts: NDArray[np.uint16] = np.zeros((2, *shape[:2], len(Signal), BINS), dtype=np.uint16)
        self._window = window
        self._half = -1
        self._dirty: NDArray[np.bool_] = np.zeros(shape[0], dtype=bool)
        self._p95: NDArray[np.float64] = np.full((*shape[:2], len(Signal)), np.nan)

    def push(self, node: int, gpu: int, signal: Signal, used: float, now: float) -> None:
        """Count one sample; ``used`` is the fraction of the limit, clipped to the first and last bin."""
        self._turn(now)
        column = int(min(max(used / WIDTH, 0.0), BINS - 1.0))
        cell = self._counts[self._half % 2, node, gpu, signal]
        if cell[column] < np.iinfo(np.uint16).max:
            cell[column] += 1
        self._dirty[node] = True

    def push_round(
        self, node: int, gpu: NDArray[np.int64], signal: NDArray[np.int64], used: NDArray[np.float64], now: float
    ) -> None:
        """`push` for samples of one node at once, (k,) each; no GPU and signal twice."""
        self._turn(now)
        column = (np.clip(used, 0.0, (BINS - 0.5) * WIDTH) / WIDTH).astype(np.int64)
        cells = self._counts[self._half % 2, node]
        counted = cells[gpu, signal, column]
        cells[gpu, signal, column] = counted + (counted < np.iinfo(np.uint16).max)
        self._dirty[node] = True

    def _turn(self, now: float) -> None:
        half = int(now // (self._window / 2))
        if half <= self._half:
            return
        if half > self._half + 1:
            self._counts[:] = 0
        else:
            self._counts[half % 2] = 0
        self._half = half
        self._dirty[:] = True

    def p95(self, now: float) -> NDArray[np.float64]:
        """(n, g, s) used fraction that 95 % of the window's samples do not exceed; NaN without a sample."""
        self._turn(now)
        nodes = np.flatnonzero(self._dirty)
        if len(nodes):
            counts = self._counts[:, nodes].sum(axis=0, dtype=np.int64).cumsum(axis=3)
            total = counts[..., -1]
            reached = counts >= np.ceil(QUANTILE * total)[..., None]
            self._p95[nodes] = np.where(total > 0, (reached.argmax(axis=3) + 1) * WIDTH, np.nan)
            self._dirty[:] = False
        return self._p95
