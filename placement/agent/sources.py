"""Where an agent's samples come from: NVML when there is a GPU, a recorded trace otherwise."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from lockstep.base import errors

__all__ = ["Nvml", "Recorded", "Sample", "Source", "open_source"]

Sample = tuple[int, str, float, float]
"""(GPU index, signal name, value, Unix seconds)"""


class Source(Protocol):
    """Reads all GPUs once."""

    def read(self) -> list[Sample]:
        """The newest values; empty when the source is at its end."""


class Nvml:
    """The driver's own library. Raises `errors.NotMeasuredError` where it is missing or answers with an error."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        import pynvml

        self._nvml = pynvml
        self._clock = clock
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except pynvml.NVMLError as error:
            raise errors.NotMeasuredError(f"NVML: {error}", place="agent", hint="--trace FILE replays one") from error

    def read(self) -> list[Sample]:
        """See `Source`. What a GPU does not offer is left out; a health report is sent for each GPU that answers."""
        found: list[Sample] = []
        for gpu, handle in enumerate(self._handles):
            now = self._clock()
            values = {
                "core-temperature": self._ask(self._nvml.nvmlDeviceGetTemperature, handle, 0),
                "power": self._ask(self._nvml.nvmlDeviceGetPowerUsage, handle),
            }
            memory = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle)
            if values["power"] is not None:
                values["power"] /= 1000
            if memory is not None and memory.total:
                values["hbm"] = memory.used / memory.total
            answered = [(gpu, name, float(value), now) for name, value in values.items() if value is not None]
            if answered:
                found += [*answered, (gpu, "health", 0.0, now)]
        return found

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None  # not offered by this board: the signal stays unmeasured and the freshness gate sees it


class Recorded:
    """JSON lines of ``[[gpu, signal, value, seconds since start], …]``, replayed with the present as start."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise errors.InputError(f"cannot be read: {error.strerror}", place=str(path)) from error
        self._rounds = self._parse(path, lines)
        self._start = clock()

    @staticmethod
    def _parse(path: Path, lines: list[str]) -> Iterator[list[Sample]]:
        parsed = []
        for number, line in enumerate(lines, start=1):
            try:
                parsed.append([(int(g), str(n), float(v), float(t)) for g, n, v, t in json.loads(line)])
            except (ValueError, TypeError) as error:
                raise errors.InputError(
                    f"not a list of [gpu, signal, value, seconds]: {error}", place=f"{path}:{number}"
                ) from error
        return iter(parsed)

    def read(self) -> list[Sample]:
        """See `Source`."""
        return [(gpu, name, value, self._start + at) for gpu, name, value, at in next(self._rounds, [])]


def open_source(trace: Path | None) -> Source:
    """A recorded trace if one is given, else NVML."""
    return Recorded(trace) if trace is not None else Nvml()
