"""Where an agent's samples and events come from: NVML when there is a GPU, a recorded trace otherwise."""

from __future__ import annotations

import importlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from lockstep.base import errors

__all__ = ["Event", "Nvml", "Recorded", "Round", "Sample", "Source", "open_source"]

Sample = tuple[int, str, float, float]
"""(GPU index, signal name, value, Unix seconds)"""
Event = tuple[int, str, float, str | None]
"""(GPU index, code such as ``xid 79``, Unix seconds, the GPU's recovery action or None)"""
RECOVERY: Final = {
    0: "none",
    1: "gpu-reset",
    2: "node-reboot",
    3: "drain-p2p",
    4: "drain-and-reset",
    5: "recover-imex-domain",
    6: "bus-reset",
    7: "system-reboot",
}
"""nvmlDeviceGpuRecoveryAction_t → as placement/health/policy.yaml names it."""
EVENTS_A_ROUND: Final = 100
"""A GPU that reports faster than this is out after the first one."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one reading gave."""

    samples: tuple[Sample, ...] = ()
    events: tuple[Event, ...] = ()


class Source(Protocol):
    """Reads all GPUs once."""

    def read(self) -> Round | None:
        """The newest values and the events since the last call; None when the source is at its end."""


class Nvml:
    """The driver's own library. Raises `errors.NotMeasuredError` where it is missing or answers with an error.

    ``nvml`` is the module `pynvml` unless a test brings its own.
    """

    def __init__(self, clock: Callable[[], float] = time.time, nvml: Any = None) -> None:
        nvml = importlib.import_module("pynvml") if nvml is None else nvml
        self._nvml = nvml
        self._clock = clock
        try:
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
            self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except nvml.NVMLError as error:
            raise errors.NotMeasuredError(f"NVML: {error}", place="agent", hint="--trace FILE replays one") from error
        self._events = self._listen()

    def _listen(self) -> Any:
        """The set of Xid events of all GPUs; None where the driver offers none."""
        found = self._ask(self._nvml.nvmlEventSetCreate)
        if found is None:
            return None
        for handle in self._handles:
            self._ask(self._nvml.nvmlDeviceRegisterEvents, handle, self._nvml.nvmlEventTypeXidCriticalError, found)
        return found

    def read(self) -> Round:
        """See `Source`; it has no end. What a GPU does not offer is left out, and a GPU that answers nothing."""
        found: list[Sample] = []
        for gpu, handle in enumerate(self._handles):
            now = self._clock()
            answered = [(gpu, name, value, now) for name, value in self._values(handle) if value is not None]
            if answered:
                found += [*answered, (gpu, "health", 0.0, now)]
        return Round(tuple(found), tuple(self._xids()))

    def _values(self, handle: Any) -> Iterator[tuple[str, float | None]]:
        """Signals in their units (`placement.telemetry.signals.Signal`); None: not offered."""
        nvml = self._nvml
        yield "core-temperature", self._ask(nvml.nvmlDeviceGetTemperature, handle, 0)
        yield "memory-temperature", self._field(handle, nvml.NVML_FI_DEV_MEMORY_TEMP)
        milliwatts = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        yield "power", None if milliwatts is None else milliwatts / 1000
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        yield "hbm", memory.used / memory.total if memory is not None and memory.total else None
        # kB/s over the last 20 ms, which is also how long each call takes.
        directions = (nvml.NVML_PCIE_UTIL_TX_BYTES, nvml.NVML_PCIE_UTIL_RX_BYTES)
        busy = [self._ask(nvml.nvmlDeviceGetPcieThroughput, handle, direction) for direction in directions]
        measured = [value for value in busy if value is not None]
        yield "pcie", max(measured) / 1000 if measured else None

    def _xids(self) -> Iterator[Event]:
        for _ in range(EVENTS_A_ROUND if self._events is not None else 0):
            data = self._ask(self._nvml.nvmlEventSetWait_v2, self._events, 0)
            if data is None:
                return  # a timeout: nothing more has happened
            gpu = self._ask(self._nvml.nvmlDeviceGetIndex, data.device)
            action = self._field(data.device, self._nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
            recovery = None if action is None else RECOVERY.get(int(action), f"unknown-{int(action)}")
            # A GPU that fell off the bus has no index any more: then the node is meant.
            yield (-1 if gpu is None else int(gpu), f"xid {int(data.eventData)}", self._clock(), recovery)

    def _field(self, handle: Any, field: int) -> float | None:
        values = self._ask(self._nvml.nvmlDeviceGetFieldValues, handle, [field])
        if values is None or values[0].nvmlReturn != 0:
            return None
        return float(values[0].value.uiVal)

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None  # not offered by this board: the signal stays unmeasured and the freshness gate sees it


class Recorded:
    """JSON lines, one round each, replayed with the present as start.

    A line is ``[[gpu, signal, value, seconds since start], …]`` or ``{"samples": […], "events":
    [[gpu, code, seconds since start, recovery action or null], …]}``.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise errors.InputError(f"cannot be read: {error.strerror}", place=str(path)) from error
        except UnicodeDecodeError as error:
            raise errors.InputError("cannot be read: not UTF-8 text", place=str(path)) from error
        start = clock()
        self._rounds = iter([_parsed(line, start, f"{path}:{number}") for number, line in enumerate(lines, start=1)])

    def read(self) -> Round | None:
        """See `Source`."""
        return next(self._rounds, None)


def _parsed(line: str, start: float, place: str) -> Round:
    try:
        data = json.loads(line)
        samples, events = (data, []) if isinstance(data, list) else (data["samples"], data.get("events", []))
        return Round(
            tuple((_index(gpu), str(name), _number(value), start + _number(at)) for gpu, name, value, at in samples),
            tuple(
                (_index(gpu), str(code), start + _number(at), None if recovery is None else str(recovery))
                for gpu, code, at, recovery in events
            ),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise errors.InputError(f"not a list of [gpu, signal, value, seconds]: {error}", place=place) from error


def _index(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"a GPU's index is a whole number, got {value!r}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, (bool, str)) or not math.isfinite(value):
        raise ValueError(f"a number, got {value!r}")
    return float(value)


def open_source(trace: Path | None) -> Source:
    """A recorded trace if one is given, else NVML."""
    return Recorded(trace) if trace is not None else Nvml()
