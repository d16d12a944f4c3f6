"""What is measured, how old it may be, and what counts as nothing left."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

__all__ = ["FRESHNESS", "Freshness", "Signal"]


class Signal(enum.IntEnum):
    """Measured per GPU; the value is the column of the arrays."""

    HEALTH = 0
    """A health report of any content; its value is not used, its age is."""
    CORE_TEMPERATURE = 1
    """Degrees Celsius."""
    MEMORY_TEMPERATURE = 2
    """Degrees Celsius."""
    POWER = 3
    """Watts."""
    HBM = 4
    """Used fraction of GPU memory."""
    NIC = 5
    """MB/s sent over the GPU's NIC."""
    PCIE = 6
    """MB/s over the GPU's PCIe link, the busier direction."""

    @classmethod
    def named(cls, name: str) -> Signal | None:
        """By the name that samples carry (``core-temperature``); None for an unknown one."""
        return _BY_NAME.get(name)


_BY_NAME: Final = {signal.name.lower().replace("_", "-"): signal for signal in Signal}


@dataclass(frozen=True, slots=True)
class Freshness:
    """Ages in seconds, by a sample's own time stamp."""

    sensors: float = 30.0
    """Temperature and power: a loaded GPU heats up within tens of seconds."""
    health: float = 60.0
    """Six times DCGM's sampling interval of 10 s."""
    hard: float = 180.0
    """Beyond this nothing counts as known, breaker or not (Koordinator's expiry of node metrics)."""
    gone: float = 3600.0
    """Nodes silent for longer are switched off rather than victims of a dead collector: the breaker leaves them out."""
    warm_up: float = 60.0
    """Reports needed before a node's first health verdict means anything (DCGM's advice)."""
    skew: float = 5.0
    """Difference of clocks that is corrected for; a sample further ahead is from the future and dropped."""
    breaker: float = 0.2
    """Stale share of the nodes from which the collector, not the nodes, is the likely cause."""


FRESHNESS: Final = Freshness()
