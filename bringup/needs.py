"""What it takes to mend a node, in the closed list of disruptions. Pure.

From the findings of a node, or from the difference of two locks when a roll-out
begins. What no stage of ours can mend is said, not tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from inventory.model import Kind
from lockstep.base.names import ComponentName
from pinsets import components as components_module
from pinsets.facts import Layer
from pinsets.findings import Finding, NodeVerdict, Severity
from pinsets.model import Activation, Component, Lock

__all__ = ["Needs", "between", "of"]

_ACTIVATED_BY: Final = {
    # A module reload and a GPU reset need everything on the node stopped, as a reboot does, and prove
    # less: the reboot is the one act of this list that a boot id proves.
    Activation.RELOAD: Kind.REBOOT,
    Activation.RESET: Kind.REBOOT,
    Activation.REBOOT: Kind.REBOOT,
    Activation.POWER_CYCLE: Kind.POWER_CYCLE,
}

_PENDING: Final = {
    Severity.RELOAD: Kind.REBOOT,
    Severity.RESET: Kind.REBOOT,
    Severity.REBOOT: Kind.REBOOT,
    Severity.POWER_CYCLE: Kind.POWER_CYCLE,
}

_SERVICES: Final = frozenset({"fabricmanager", "imex", "kubelet"})
"""Daemons: a changed package is done as `restart`, since no service starts during the install."""

_IGNORED: Final = (Severity.WARN, Severity.INFO)


@dataclass(frozen=True, slots=True)
class Needs:
    """Kinds of disruption, and what is out of reach."""

    kinds: frozenset[Kind]
    cannot: tuple[str, ...]
    """One sentence for each finding that no stage mends; then nothing at all is done to the node."""


def of(verdict: NodeVerdict, lock: Lock, components: Mapping[ComponentName, Component]) -> Needs:
    """What the node's findings ask for, against the lock that it is to equal."""
    kinds: set[Kind] = set()
    cannot: list[str] = []
    for finding in verdict.findings:
        if finding.severity in _IGNORED or finding.use is not None:
            # What only one use forbids is no reason to change the node.
            continue
        found = _of_finding(finding, lock, components)
        kinds |= found.kinds
        cannot += found.cannot
    if Kind.POWER_CYCLE in kinds:
        cannot.append("needs a power cycle, which is not supported yet")
    return Needs(frozenset(kinds), tuple(dict.fromkeys(cannot)))


def between(before: Lock | None, after: Lock, components: Mapping[ComponentName, Component]) -> Needs:
    """What a roll-out from one lock to another asks for."""
    old = {pin.component: pin for pin in before.pins} if before is not None else {}
    changed = [pin.component for pin in after.pins if old.get(pin.component) != pin]
    same_packages = before is not None and before.packages == after.packages
    kinds: set[Kind] = set() if same_packages else {Kind.INSTALL}
    cannot: list[str] = []
    for name in changed:
        found = _install(ComponentName(name), after, components)
        kinds |= found.kinds
        cannot += found.cannot
    return Needs(frozenset(kinds), tuple(cannot))


def _of_finding(finding: Finding, lock: Lock, components: Mapping[ComponentName, Component]) -> Needs:
    where = finding.coordinate
    said = f"{where or finding.id}: {finding.observed} (expected {finding.expected})"
    if finding.id.startswith("pending."):
        return Needs(frozenset({_PENDING[finding.severity]}), ())
    if not finding.id.startswith("pin.") or where is None:
        return Needs(frozenset(), (f"{said}: {finding.remedy}",))
    if where.layer is Layer.CONTAINER:
        return Needs(frozenset(), (f"{said}: images are not ours to change",))
    return _install(where.component, lock, components, said)


def _install(
    name: ComponentName, lock: Lock, components: Mapping[ComponentName, Component], said: str | None = None
) -> Needs:
    """What bringing one component to its lock by packages asks for."""
    component = components.get(name)
    what = said or name
    if component is None:
        return Needs(frozenset(), (f"{what}: no such component in components.yaml",))
    if name.startswith("firmware."):
        return Needs(frozenset(), (f"{what}: firmware is written only by `lockstep firmware apply`",))
    if component.owner != "lockstep":
        return Needs(frozenset(), (f"{what}: changed by {component.owner}, not by us",))
    pin = lock.pin(name)
    if pin is None or not _carried(component, pin.version, lock):
        return Needs(frozenset(), (f"{what}: no package of the lock carries it",))
    kinds = {Kind.INSTALL}
    if (activation := _ACTIVATED_BY.get(component.activation)) is not None:
        kinds.add(activation)
    if name in _SERVICES:
        kinds.add(Kind.RESTART)
    return Needs(frozenset(kinds), ())


def _carried(component: Component, version: str, lock: Lock) -> bool:
    """Whether a package of the lock carries that version of the component."""
    cuda = lock.pin("cuda")
    names = set(components_module.carriers(component, lock.os, version, cuda.version if cuda else None))
    return any(package.name in names for package in lock.packages)
