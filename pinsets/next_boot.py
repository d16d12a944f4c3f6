"""Whether the kernel that the next boot brings has a driver's module: without it a reboot loses the GPUs.

A node is pending a reboot only if what the reboot would bring equals the lock. A new kernel beside a driver that was
built for the running one alone does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lockstep.base.names import ComponentName
from pinsets.deviations import Deviation
from pinsets.facts import Coordinate, Fact, Layer, Version
from pinsets.findings import Severity, Verdict
from pinsets.model import Lock

__all__ = ["judge", "reads"]

_PREFIX: Final = "driver.for."
"""``driver.for.KERNEL``: version of the module for that kernel, empty where there is none."""

_KERNEL_ONDISK: Final = Coordinate(ComponentName("kernel"), Layer.ONDISK)
_KERNEL_RUNNING: Final = Coordinate(ComponentName("kernel"), Layer.RUNNING)
_DRIVER_ONDISK: Final = Coordinate(ComponentName("driver"), Layer.ONDISK)


def reads(attribute: str) -> bool:
    """Whether `judge` looks at it: part of what makes two nodes alike."""
    return attribute.startswith(_PREFIX)


def judge(facts: Mapping[Coordinate, Fact], attributes: Mapping[str, str], lock: Lock) -> tuple[Deviation, ...]:
    """One deviation at ``driver@ondisk`` where the next kernel is another one and its module is not the pinned one.

    Nothing where the next kernel, or what it has, could not be read: those are findings of their own.
    """
    pin = lock.pin("driver")
    following = _version(facts, _KERNEL_ONDISK)
    if pin is None or following is None or following == _version(facts, _KERNEL_RUNNING):
        return ()
    module = attributes.get(f"{_PREFIX}{following}")
    if module is None or (module and pin.accepts(module)):
        return ()
    return (
        Deviation(
            id="pin.driver",
            severity=Severity.BLOCK,
            verdict=Verdict.DRIFTED,
            coordinate=_DRIVER_ONDISK,
            expected=f"{' or '.join((pin.version, *pin.accept))} for kernel {following}",
            observed=f"{module} for kernel {following}" if module else f"no module for kernel {following}",
            cause="the kernel that the next boot brings was not given the driver's module",
            remedy="build or install the module for that kernel first: a reboot now comes up without GPUs",
        ),
    )


def _version(facts: Mapping[Coordinate, Fact], coordinate: Coordinate) -> str | None:
    fact = facts.get(coordinate)
    seen = fact.observation if fact is not None else None
    return seen.value if isinstance(seen, Version) else None
