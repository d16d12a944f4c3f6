"""The health of every device now, from the events that came in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.health import policies
from placement.health.policies import Effect, Meaning, Policy
from placement.topology import Topology

__all__ = ["Board", "Event"]


@dataclass(frozen=True, slots=True)
class Event:
    """One report about one GPU."""

    node: int
    """Index in the topology."""
    gpu: int
    """Index on the node; -1: the node as a whole."""
    code: str
    """``xid 79`` or ``dcgm NVLINK_DOWN``."""
    at: float
    """Unix time in seconds, of the node; the intake puts its own where that cannot be."""
    recovery: str | None = None
    """The GPU's own recovery action, where it was read."""


class Board:
    """Out, demoted or fit, per device. ``version`` grows whenever an answer may have changed."""

    def __init__(self, topology: Topology, policy: Policy | None = None) -> None:
        self._topology = topology
        self.policy = policy or policies.load()
        shape = topology.numa.shape
        self.out: NDArray[np.bool_] = np.zeros(shape, dtype=bool)
        """(n, g) devices that take nothing."""
        self.link: NDArray[np.bool_] = np.zeros(shape, dtype=bool)
        """(n, g) devices that take no work over several GPUs."""
        self.node_out: NDArray[np.bool_] = np.zeros(shape[0], dtype=bool)
        """(n,) nodes that take nothing."""
        self.history = np.zeros(shape[0], dtype=np.int64)
        """(n,) events other than notices ever reported: nodes that keep failing rank last."""
        self.demoted = False
        """Whether any link is demoted."""
        self.version = 0
        self.alarms: dict[str, int] = {}
        """Code → nodes that reported it within the window when the alarm was raised."""
        self._unknown: dict[str, set[int]] = {}
        self._causes: dict[tuple[int, int], tuple[Event, Meaning]] = {}
        self._recent: dict[str, dict[int, float]] = {}

    def report(self, event: Event, *, alarm: Callable[[str, int], None] | None = None) -> Meaning:
        """Take one event in; what it means. ``alarm(code, nodes)`` is called once per alarm raised.

        Raises IndexError for a device that the topology does not have.
        """
        if not 0 <= event.node < len(self.node_out) or not -1 <= event.gpu < self._topology.gpus[event.node]:
            raise IndexError(f"no GPU {event.gpu} on node {event.node}")
        meaning = self.policy.meaning(event.code, event.recovery)
        self._count(event, alarm)
        effect = meaning.effect
        if effect is Effect.NODE and event.code in self.alarms:
            effect = Effect.DEVICE
        if effect is Effect.NOTICE:
            if meaning.unknown:
                self._unknown.setdefault(event.code, set()).add(event.node)
            return meaning
        self.history[event.node] += 1
        whole = event.gpu < 0
        if effect is Effect.NODE or (whole and effect is Effect.DEVICE and event.code not in self.alarms):
            self.node_out[event.node] = True
            self._causes[event.node, -1] = (event, meaning)
        elif effect is Effect.LINK or not whole:
            gpus = range(int(self._topology.gpus[event.node])) if whole else (event.gpu,)
            for gpu in gpus:
                (self.link if effect is Effect.LINK else self.out)[event.node, gpu] = True
                self._causes[event.node, gpu] = (event, meaning)
        self._changed()
        return meaning

    def _count(self, event: Event, alarm: Callable[[str, int], None] | None) -> None:
        limit = self.policy.alarm
        seen = self._recent.setdefault(event.code, {})
        seen[event.node] = max(event.at, seen.get(event.node, event.at))
        newest = max(seen.values())
        for node in [node for node, at in seen.items() if at < newest - limit.window_seconds]:
            del seen[node]
        raised = len(seen) > limit.share * len(self.node_out) and len(seen) >= limit.nodes
        if raised and event.code not in self.alarms:
            self.alarms[event.code] = len(seen)
            if alarm is not None:
                alarm(event.code, len(seen))
        elif not raised:
            self.alarms.pop(event.code, None)

    def warnings(self) -> tuple[str, ...]:
        """Codes that nobody could explain, for people: they shut nothing and must not go unseen."""
        return tuple(
            f"{code} is not in the policy and came without a recovery action; nodes that reported it: {len(nodes)}"
            for code, nodes in sorted(self._unknown.items())
        )

    def clear(self, node: int, gpu: int = -1) -> None:
        """The device was reset or exchanged; ``gpu`` -1: the node was restarted, all its devices are fit again."""
        if gpu < 0:
            self.out[node] = self.link[node] = self.node_out[node] = False
            self._causes = {key: value for key, value in self._causes.items() if key[0] != node}
        else:
            self.out[node, gpu] = self.link[node, gpu] = False
            self._causes.pop((node, gpu), None)
        self._changed()

    def _changed(self) -> None:
        self.demoted = bool(self.link.any())
        self.version += 1

    def cause(self, node: int, gpu: int) -> str:
        """Why a device is out or demoted, for people; empty if it is fit."""
        found = self._causes.get((node, -1)) or self._causes.get((node, gpu))
        if found is None:
            return ""
        event, meaning = found
        return f"{event.code}: {meaning.reason}; {meaning.remedy}"
