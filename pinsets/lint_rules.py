"""A pinset against the rules and against its SKUs: what it breaks by itself, before any fleet is touched.

A rule that a pinset waives with a reason (``rules: {A2: …}``) is honoured and shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inventory import load as fleets
from lockstep.base import issues
from pinsets import components, normalisers, rules
from pinsets.findings import Severity
from pinsets.model import Pin, Pinset
from pinsets.rules import Breach, Context, Undecided

if TYPE_CHECKING:
    from inventory.model import Sku
    from pinsets.resolved import Resolved

__all__ = ["Linted", "Place", "by_rules", "report_on", "texts"]

_STOPS: Final = (Severity.BLOCK, Severity.GROUP_BLOCK)

Place = tuple[str, int | None]
"""Path and line."""


@dataclass(frozen=True, slots=True)
class Linted:
    """What the rules say of one pinset."""

    breaches: tuple[Breach, ...]
    """Not waived."""
    waived: tuple[tuple[Breach, str], ...]
    """With the reason that the pinset gives."""
    idle: tuple[str, ...]
    """Rules that it waives and does not break."""
    undecided: tuple[Undecided, ...]
    """Rules that the pins do not settle."""


def skus_of(pinset: Pinset) -> tuple[Sku, ...]:
    """The SKUs that it is made for, as far as their files can be read."""
    ignored = issues.Report()
    found = (fleets.read_sku(name, None, ignored) for name in pinset.sku)
    return tuple(sku for sku in found if sku is not None)


def texts(pinset: Pinset) -> dict[str, str]:
    """Component → version as written; the package's own text where it is the same version, since it says more."""
    return {name: _text(name, pin) for name, pin in pinset.pins.items()}


def _text(name: str, pin: Pin) -> str:
    version = pin.version or (pin.accept[0] if pin.accept else "")
    if pin.package is not None and normalisers.equal(name, pin.package, version):
        return pin.package
    return version


def _variants(pinset: Pinset) -> Iterator[Mapping[str, str]]:
    """The set, and once more with each accepted value in the place of the pinned one."""
    plain = texts(pinset)
    yield plain
    for name, pin in pinset.pins.items():
        for value in pin.accept:
            if not normalisers.equal(name, value, plain[name]):
                yield {**plain, name: value}


def by_rules(pinset: Pinset, skus: Sequence[Sku] | None = None) -> Linted:
    """The breaches of a pinset (bases merged), for each of its SKUs; ``skus`` None: the files of their names."""
    known = skus_of(pinset) if skus is None else skus
    contexts = [Context(sku=sku) for sku in known] or [Context()]
    breaches: dict[tuple[str, str, str], Breach] = {}
    undecided: dict[str, Undecided] = {}
    for context in contexts:
        for index, pins in enumerate(_variants(pinset)):
            outcome = rules.of_set(pins, context)
            for breach in outcome.breaches:
                breaches.setdefault((breach.rule.id, breach.expected, breach.observed), breach)
            if index == 0:
                undecided |= {one.rule.id: one for one in outcome.undecided}
    broken = {rule for rule, _, _ in breaches}
    return Linted(
        breaches=tuple(one for one in breaches.values() if one.rule.id not in pinset.rules),
        waived=tuple((one, pinset.rules[one.rule.id]) for one in breaches.values() if one.rule.id in pinset.rules),
        idle=tuple(sorted(set(pinset.rules) - broken)),
        undecided=tuple(undecided.values()),
    )


def report_on(resolved: Resolved, report: issues.Report) -> Linted:
    """As `by_rules`, with what is wrong as issues at the pins that they are about.

    A breach that blocks is an error; one that warns, is limited to a use or rests on
    a doubtful value is a warning, and so is a pin that no instance of a SKU meets.
    """
    pinset = resolved.pinset
    linted = by_rules(pinset)
    for breach in linted.breaches:
        if breach.severity is Severity.INFO:
            continue
        path, line = _place(resolved, breach)
        rule = breach.rule
        # A set has no layers: what a rule says of one is left out.
        wanted = re.sub(r"@[a-z]+\b", "", breach.expected)
        text = f"rule {rule.id}: {_names(breach)} {breach.observed}, wanted {wanted}: {rule.message}"
        hint = f"{rule.remedy}; or say why it is kept: `rules: {{{rule.id}: …}}`"
        stops = breach.severity in _STOPS and breach.use is None
        (report.error if stops else report.warning)(path, line, text, hint)
    path = _first(resolved)[0]
    for rule_id in linted.idle:
        report.warning(path, None, f"rule {rule_id} is waived and not broken", "take the waiver out")
    _instances(resolved, report)
    return linted


def _names(breach: Breach) -> str:
    return " and ".join(dict.fromkeys(str(place.component) for place in breach.coordinates)) or breach.rule.title


def _first(resolved: Resolved) -> Place:
    origin = next(iter(resolved.origins.values()), None)
    return (origin.path, origin.line) if origin is not None else (resolved.chain[0], None)


def _place(resolved: Resolved, breach: Breach) -> Place:
    for coordinate in breach.coordinates:
        origin = resolved.origins.get(coordinate.component)
        if origin is not None:
            return origin.path, origin.line
    return _first(resolved)


def _instances(resolved: Resolved, report: issues.Report) -> None:
    """A pin of something that a SKU does not list compares nothing: that is said."""
    registry = components.load()
    for sku in skus_of(resolved.pinset):
        for name, pin in resolved.pinset.pins.items():
            entry = next((entry for known, entry in registry.items() if known == name), None)
            if entry is None or entry.instance is None:
                continue
            origin = resolved.origins[name]
            slots = sku.slots(entry.instance)
            if not slots:
                report.warning(
                    origin.path,
                    origin.line,
                    f"`{name}` is compared nowhere: SKU `{sku.sku}` lists no {entry.instance}",
                    f"name them in inventory/skus/{sku.sku}.yaml",
                )
            _slots(name, pin, sku, slots, resolved, report)


def _slots(name: str, pin: Pin, sku: Sku, slots: Sequence[str], resolved: Resolved, report: issues.Report) -> None:
    """Values given slot by slot are of slots that the SKU has, and leave none out."""
    if not pin.instances:
        return
    origin = resolved.origins[name]
    if strange := [slot for slot in pin.instances if slot not in slots]:
        report.error(origin.path, origin.line, f"`{name}`: SKU `{sku.sku}` has no slot `{strange[0]}`")
    if pin.version is None and not pin.accept and (left := [slot for slot in slots if slot not in pin.instances]):
        report.error(origin.path, origin.line, f"`{name}`: nothing is said of slot `{left[0]}` of SKU `{sku.sku}`")
