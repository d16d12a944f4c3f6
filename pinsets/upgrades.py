"""What a step from one pinset to another asks of a node, component by component. Pure.

The words are: safe, needs-reboot, needs-power-cycle, one-way, blocked. What becomes
active how is in the registry, what cannot be undone and what does not fit are rules.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lockstep.base.names import ComponentName
from pinsets import components, lint_rules, rules, wishes
from pinsets.findings import Severity
from pinsets.model import Activation, LockedPin, Pinset

if TYPE_CHECKING:
    from inventory.model import Sku

__all__ = ["Need", "Step", "Upgrade", "between"]


class Need(enum.StrEnum):
    """What a change needs, the gentlest first."""

    SAFE = "safe"
    REBOOT = "needs-reboot"
    POWER_CYCLE = "needs-power-cycle"
    ONE_WAY = "one-way"
    BLOCKED = "blocked"


_ORDER: Final = tuple(Need)
_ACTIVATIONS: Final[Mapping[Activation, tuple[Need, str]]] = {
    Activation.NONE: (Need.SAFE, "active when it is installed and its service has been restarted"),
    Activation.RELOAD: (Need.SAFE, "active after a reload of the module, which needs a vacant node"),
    Activation.RESET: (Need.SAFE, "active after a reset of the device, which needs a vacant node"),
    Activation.REBOOT: (Need.REBOOT, "active after a reboot"),
    Activation.POWER_CYCLE: (Need.POWER_CYCLE, "active after a power cycle"),
}
_STOPPERS: Final = frozenset({Severity.BLOCK, Severity.GROUP_BLOCK})


@dataclass(frozen=True, slots=True)
class Step:
    """One component that the two sets do not pin alike."""

    component: str
    old: str | None
    """Normalised, accepted values joined by `` or ``; None: not pinned."""
    new: str | None
    need: Need
    activation: Activation
    reasons: tuple[str, ...]
    """Why, the one that decided first."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The whole step."""

    steps: tuple[Step, ...]
    """Sorted by component."""
    need: Need
    """The hardest of all; safe where nothing differs."""
    reasons: tuple[str, ...] = ()
    """What stands against the new set as a whole and lies at no component that changes."""
    undecided: tuple[str, ...] = ()
    """Rules that the pins alone cannot decide, with what they lack."""


def between(old: Pinset, new: Pinset, skus: Sequence[Sku] = ()) -> Upgrade:
    """What the step from ``old`` to ``new`` (bases merged) needs on machines of ``skus``; none given: on any."""
    before = {pin.component: pin for pin in wishes.pins(old)}
    after = {pin.component: pin for pin in wishes.pins(new)}
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    texts = {name: (_written(before.get(name)), _written(after.get(name))) for name in changed}
    found = {name: list(_own(name, before.get(name), after.get(name))) for name in changed}
    whole: list[str] = []
    linted = lint_rules.by_rules(new, skus)
    judged = [(Need.BLOCKED, one) for one in linted.breaches if _stops(one)]
    for sku in skus or (None,):
        judged += _ways(old, new, rules.Context(sku))
    for need, breach in judged:
        reason = f"{breach.rule.id}: {_sentence(breach, need)}"
        touched = [name for name in dict.fromkeys(str(at.component) for at in breach.coordinates) if name in found]
        for name in touched:
            if (need, reason) not in found[name]:
                found[name].insert(0, (need, reason))
        if not touched and reason not in whole:
            whole.append(reason)
    undecided = _undecided(linted.undecided, new)
    steps = tuple(_step(name, texts[name], found[name]) for name in changed)
    needs = [step.need for step in steps] + ([Need.BLOCKED] if whole else [])
    return Upgrade(steps, _hardest(needs), tuple(whole), tuple(undecided))


def _undecided(found: Iterable[rules.Undecided], pinset: Pinset) -> dict[str, None]:
    """Rules of which something is pinned and the rest in no table; those about what is not pinned say nothing here."""
    texts: dict[str, None] = {}
    for one in found:
        other = [text for text in one.missing if not text.endswith(": not read")]
        if other and one.rule.id not in pinset.rules:
            texts[f"{one.rule.id}: {', '.join(other)}"] = None
    return texts


def _step(name: str, texts: tuple[str | None, str | None], found: list[tuple[Need, str]]) -> Step:
    need = _hardest(one for one, _ in found)
    reasons = [reason for one, reason in found if one is need] + [reason for one, reason in found if one is not need]
    return Step(name, *texts, need, components.load()[ComponentName(name)].activation, tuple(reasons))


def _hardest(needs: Iterable[Need]) -> Need:
    return max(needs, key=_ORDER.index, default=Need.SAFE)


def _own(name: str, old: LockedPin | None, new: LockedPin | None) -> Iterable[tuple[Need, str]]:
    """What the component's own change asks, rules apart."""
    entry = components.load()[ComponentName(name)]
    if new is None:
        yield Need.SAFE, "no longer pinned: what is there stays, and nodes are only compared with each other"
        return
    if old is not None and _values(old) == _values(new):
        yield Need.SAFE, "the version stays, only what the pin means changes"
        return
    if old is not None and not new.instances and old.accepts(new.version):
        yield Need.SAFE, "the old set accepts the new value already"
    if entry.owner == "image":
        yield Need.BLOCKED, "comes with the machine's image: give the machines a new one, nothing here installs it"
        return
    need, reason = _ACTIVATIONS[entry.activation]
    if entry.owner == "vendor":
        reason = f"written by `lockstep firmware apply`; {reason}"
    elif entry.owner not in ("lockstep", "vendor"):
        reason = f"changed by its owner, {entry.owner}; {reason}"
    yield need, reason


def _values(pin: LockedPin) -> tuple[str, frozenset[str], tuple[tuple[str, str], ...]]:
    return pin.version, frozenset(pin.accept), tuple(sorted(pin.instances.items()))


def _ways(old: Pinset, new: Pinset, context: rules.Context) -> list[tuple[Need, rules.Breach]]:
    """Steps that must not be taken, and steps whose way back must not be."""
    there, back = lint_rules.texts(old), lint_rules.texts(new)
    forbidden = rules.of_change(there, back, context).breaches
    final = rules.of_change(back, there, context).breaches
    return [(Need.BLOCKED, one) for one in forbidden] + [(Need.ONE_WAY, one) for one in final]


def _stops(breach: rules.Breach) -> bool:
    """As lint has it: what is limited to a use or doubtful only warns."""
    return breach.severity in _STOPPERS and breach.use is None and not breach.doubtful


def _sentence(breach: rules.Breach, need: Need) -> str:
    if need is Need.ONE_WAY:
        return f"cannot be taken back: {breach.rule.title}"
    return f"{breach.rule.message}; expected {breach.expected}, is {breach.observed}"


def _written(pin: LockedPin | None) -> str | None:
    return wishes.written(pin) if pin is not None else None
