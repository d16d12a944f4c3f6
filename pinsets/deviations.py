"""One node's facts against one lock: every deviation, with its severity by layer and activation.

A node is *pending* only where what the next reload or reboot brings equals the
lock. Where the disk itself differs it is *drifted*: reinstall first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lockstep.base.names import ComponentName
from pinsets.facts import Absent, Coordinate, Fact, Layer, Observation, Unreadable, Version
from pinsets.findings import Severity, Verdict
from pinsets.model import Activation, Enforce, Lock, LockedPin

__all__ = ["DRIVER_RUNNING", "NOT_READ", "Deviation", "driver_answers", "of", "shown"]

Facts = Mapping[Coordinate, Fact]

NOT_READ: Final = Unreadable("not read")

DRIVER_RUNNING: Final = Coordinate(ComponentName("driver"), Layer.RUNNING)
"""What a GPU tells is told through the driver: where that is mute, the driver is the finding, not each GPU."""

_DRIVER_BESIDE: Final = tuple(Coordinate(ComponentName("driver"), layer) for layer in (Layer.ONDISK, Layer.PACKAGE))

_NEXT: Final = (Layer.ONDISK, Layer.FLASHED, Layer.PACKAGE)
"""Layers that say what will run after the next activation; the first one read decides."""

_PENDING: Final = {
    Activation.RELOAD: (Severity.RELOAD, Verdict.PENDING_RELOAD),
    Activation.RESET: (Severity.RESET, Verdict.PENDING_RESET),
    Activation.REBOOT: (Severity.REBOOT, Verdict.PENDING_REBOOT),
    Activation.POWER_CYCLE: (Severity.POWER_CYCLE, Verdict.PENDING_POWER_CYCLE),
}


@dataclass(frozen=True, slots=True)
class Deviation:
    """One place where a node differs from what is expected."""

    id: str
    severity: Severity
    verdict: Verdict
    """What it makes of the node; admit for what is only reported."""
    coordinate: Coordinate | None
    expected: str
    observed: str
    cause: str
    remedy: str
    use: str | None = None
    """As `findings.Finding.use`."""
    doubtful: bool = False


def shown(observation: Observation) -> str:
    """An observation as people read it: the raw string beside the value where it says more."""
    if isinstance(observation, Version) and observation.raw.strip() != observation.value and observation.raw:
        return f"{observation.value} ({observation.raw.strip()})" if len(observation.raw) <= 60 else observation.value
    return str(observation)


def driver_answers(facts: Facts) -> bool:
    """Whether the driver can tell anything of its GPUs: a module runs, and what is installed beside it is the same.

    After an upgrade without a reboot the vendor's library refuses the old module
    ("Driver/library version mismatch"): then the driver is the finding.
    """
    running = facts.get(DRIVER_RUNNING)
    if running is None or not isinstance(running.observation, Version):
        return running is None or not isinstance(running.observation, Absent)
    beside = (facts.get(coordinate) for coordinate in _DRIVER_BESIDE)
    return all(
        fact is None or not isinstance(fact.observation, Version) or fact.observation.value == running.observation.value
        for fact in beside
    )


def of(facts: Facts, lock: Lock, instances: Mapping[str, Sequence[str]]) -> tuple[Deviation, ...]:
    """Every deviation of one node's facts from its lock; empty when it is in step.

    ``instances`` maps ``gpu`` and ``nic`` to the slot names to look at: those of
    the SKU that were seen. A missing instance is a deviation of its own.
    """
    found: list[Deviation] = []
    mute = lock.pin("driver") is not None and not driver_answers(facts)
    for pin in lock.pins:
        names: Sequence[str | None] = (None,) if pin.instance is None else instances.get(pin.instance, ())
        for name in names:
            here = pin.at(name)
            for deviation in (*_of_pin(facts, here, name), *_beside(facts, here, name)):
                if mute and pin.instance == "gpu" and deviation.id.startswith("unreadable."):
                    continue
                found.append(deviation)
    return tuple(found)


def _of_pin(facts: Facts, pin: LockedPin, instance: str | None) -> list[Deviation]:
    component = ComponentName(pin.component)
    read = {layer: _at(facts, Coordinate(component, layer, instance)) for layer in pin.layers}
    if all(isinstance(seen, Version) and pin.accepts(seen.value) for seen in read.values()):
        return []
    found = []
    for layer, seen in read.items():
        if isinstance(seen, Version) and pin.accepts(seen.value):
            continue
        coordinate = Coordinate(component, layer, instance)
        if isinstance(seen, Unreadable):
            found.append(_unreadable(pin, coordinate, seen))
        elif layer is Layer.RUNNING:
            found.append(_not_running(facts, pin, coordinate, seen, read))
        else:
            found.append(_wrong(pin, coordinate, seen))
    return found


_BESIDE: Final = (Layer.RUNNING, Layer.ONDISK, Layer.LIBRARY, Layer.FLASHED)
"""Layers that, read and not pinned, still say something: a daemon that was not restarted, firmware that was written."""


def _beside(facts: Facts, pin: LockedPin, instance: str | None) -> list[Deviation]:
    """Layers that the pin does not name and that were read all the same: a warning each where they differ."""
    found = []
    for layer in _BESIDE:
        if layer in pin.layers:
            continue
        coordinate = Coordinate(ComponentName(pin.component), layer, instance)
        seen = _at(facts, coordinate)
        if isinstance(seen, Version) and not pin.accepts(seen.value):
            found.append(
                Deviation(
                    id=f"layer.{pin.component}",
                    severity=Severity.WARN,
                    verdict=Verdict.ADMIT,
                    coordinate=coordinate,
                    expected=_expected(pin),
                    observed=shown(seen),
                    cause=f"the pin does not name layer {layer.value}, and it differs",
                    remedy=f"restart or reload what uses {pin.component}, or pin this layer too",
                )
            )
    return found


def _at(facts: Facts, coordinate: Coordinate) -> Observation:
    fact = facts.get(coordinate)
    return fact.observation if fact is not None else NOT_READ


def _graded(pin: LockedPin, severity: Severity, verdict: Verdict) -> tuple[Severity, Verdict]:
    """Severity and verdict after the pin's own ``enforce``."""
    if pin.enforce is Enforce.WARN:
        return Severity.WARN, Verdict.ADMIT
    if pin.enforce is Enforce.INFO:
        return Severity.INFO, Verdict.ADMIT
    return severity, verdict


def _expected(pin: LockedPin) -> str:
    return " or ".join((pin.version, *pin.accept))


def _unreadable(pin: LockedPin, coordinate: Coordinate, seen: Unreadable) -> Deviation:
    severity, verdict = _graded(pin, Severity.BLOCK, Verdict.UNREADABLE)
    return Deviation(
        id=f"unreadable.{pin.component}",
        severity=severity,
        verdict=verdict,
        coordinate=coordinate,
        expected=_expected(pin),
        observed=str(seen),
        cause="it could not be read, and unknown is never in step",
        remedy="see the reason; `lockstep probe` shows the script that reads a node",
    )


def _not_running(
    facts: Facts, pin: LockedPin, coordinate: Coordinate, seen: Observation, read: Mapping[Layer, Observation]
) -> Deviation:
    """The running version differs: pending if the disk holds the pinned one, drifted otherwise."""
    pending = _PENDING.get(pin.activation)
    if pending is not None and _comes_next(facts, pin, coordinate, read):
        severity, verdict = _graded(pin, *pending)
        act = pin.activation.value
        return Deviation(
            id=f"pending.{pin.component}",
            severity=severity,
            verdict=verdict,
            coordinate=coordinate,
            expected=_expected(pin),
            observed=shown(seen),
            cause=f"the pinned version is installed but not active: no {act} since",
            remedy=f"{act} (on disk is {pin.version})",
        )
    severity, verdict = _graded(pin, Severity.BLOCK, Verdict.DRIFTED)
    disk_known = any(isinstance(_layer(facts, coordinate, layer, read), Version) for layer in _NEXT)
    return Deviation(
        id=f"pin.{pin.component}",
        severity=severity,
        verdict=verdict,
        coordinate=coordinate,
        expected=_expected(pin),
        observed=shown(seen),
        cause="it runs another version, and the disk does not hold the pinned one"
        if disk_known
        else "it runs another version",
        remedy="reinstall first: a reboot would not bring the pinned version"
        if disk_known
        else f"bring {pin.component} to {pin.version}",
    )


def _comes_next(facts: Facts, pin: LockedPin, coordinate: Coordinate, read: Mapping[Layer, Observation]) -> bool:
    """Whether the next activation brings what the lock pins."""
    others = [seen for layer, seen in read.items() if layer is not Layer.RUNNING]
    if not all(isinstance(seen, Version) and pin.accepts(seen.value) for seen in others):
        return False
    for layer in _NEXT:
        seen = _layer(facts, coordinate, layer, read)
        if seen is not NOT_READ:
            return isinstance(seen, Version) and pin.accepts(seen.value)
    return False


def _layer(facts: Facts, coordinate: Coordinate, layer: Layer, read: Mapping[Layer, Observation]) -> Observation:
    """The observation at another layer of the same thing, pinned there or only read."""
    if layer in read:
        return read[layer]
    return _at(facts, Coordinate(coordinate.component, layer, coordinate.instance))


def _wrong(pin: LockedPin, coordinate: Coordinate, seen: Observation) -> Deviation:
    severity, verdict = _graded(pin, Severity.BLOCK, Verdict.DRIFTED)
    missing = isinstance(seen, Absent)
    return Deviation(
        id=f"pin.{pin.component}",
        severity=severity,
        verdict=verdict,
        coordinate=coordinate,
        expected=_expected(pin),
        observed=shown(seen),
        cause="it is not installed" if missing else "another version is installed",
        remedy=f"install {pin.component} {pin.version}",
    )
