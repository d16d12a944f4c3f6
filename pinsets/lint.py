"""The plainest lint of a pinset file: a tuple of small checks that all run. What fits what: `pinsets.lint_rules`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from lockstep.base import documents, issues
from lockstep.base.names import ComponentName
from pinsets import components, normalisers, rules
from pinsets.model import Pin, Pinset

__all__ = ["CHECKS", "exact_or_reason", "run"]

PRESENCE: Final = frozenset({"gpu", "nvlink.domain"})
"""Registered so that findings can name them; what they should be stands in SKU and fleet file, not in a pinset."""

_NUMBERED: Final = frozenset({"driver", "debian", "nccl", "rccl", "semver", "amdgpu", "rocm"})
"""Normalisers of things with dotted numbers: `580` there is a branch, not a version."""


def run(pinset: Pinset, document: documents.Document, report: issues.Report) -> None:
    """All `CHECKS` over one file of the catalogue."""
    for check in CHECKS:
        check(pinset, document, report)


def name_is_the_files(pinset: Pinset, document: documents.Document, report: issues.Report) -> None:
    """The name inside is the file's, since a lock's file is named by it."""
    stem = document.path.rpartition("/")[2].removesuffix(".yaml")
    if pinset.pinset not in (stem, documents.PLACEHOLDER):
        report.error(
            document.path, document.line("pinset"), f"`pinset: {pinset.pinset}` is not the file's name `{stem}`"
        )


def components_registered(pinset: Pinset, document: documents.Document, report: issues.Report) -> None:
    """Nothing spells a component that is not in the registry."""
    known = components.load()
    for name in pinset.pins:
        line = document.line("pins", name)
        if name in PRESENCE:
            report.error(
                document.path, line, f"`{name}` is not pinned", "the SKU and the fleet file say what is expected"
            )
        elif ComponentName(name) not in known:
            hint = documents.did_you_mean(name, sorted(known))
            report.error(document.path, line, f"unknown component `{name}`", hint)


def versions_exact(pinset: Pinset, document: documents.Document, report: issues.Report) -> None:
    """Exact versions only: what a range means changes without a commit."""
    for name, pin in pinset.pins.items():
        for where, index, text in _texts(pin):
            reason = exact_or_reason(name, text, package=where == "package")
            if reason is not None:
                loc = ("pins", name, where) if index is None else ("pins", name, where, index)
                report.error(
                    document.path,
                    document.line(*loc),
                    f"`{name}`: {reason}: {text!r}",
                    "pin one exact version; further ones that count as equal go to `accept:` with `source:`",
                )


def _texts(pin: Pin) -> Iterator[tuple[str, int | str | None, str]]:
    if pin.version is not None:
        yield "version", None, pin.version
    for index, text in enumerate(pin.accept):
        yield "accept", index, text
    for slot, text in pin.instances.items():
        yield "instances", slot, text
    if pin.package is not None:
        yield "package", None, pin.package


def exact_or_reason(component: str, text: str, *, package: bool = False) -> str | None:
    """None for an exact version, else why it is none."""
    bare = text.strip()
    if not bare:
        return "the version is empty"
    if re.match(r"[<>=~^!]", bare) or re.search(r"[<>,|]|\s(to|-|and|or)\s|\.\.\.?$", bare):
        return "a range is no version"
    if "*" in bare or re.search(r"(^|\.)[xX](\.|$)", bare):
        return "a wildcard is no version"
    if re.fullmatch(r"latest|newest|stable|current|any|recent|lts|production", bare, re.IGNORECASE):
        return "a moving name is no version"
    entry = components.load().get(ComponentName(component))
    numbered = entry is not None and entry.normaliser in _NUMBERED and not package
    if numbered and "." not in normalisers.normalise(component, bare):
        return "a branch is no version"
    return None


def waived_rules_known(pinset: Pinset, document: documents.Document, report: issues.Report) -> None:
    """A waiver of a rule that does not exist hides a typing error, and one without a reason hides everything."""
    known = sorted(rule.id for rule in rules.load())
    for rule, reason in pinset.rules.items():
        line = document.line("rules", rule)
        if rule not in known:
            report.error(document.path, line, f"unknown rule `{rule}`", documents.did_you_mean(rule, known))
        elif len(reason.split()) < WORDS_OF_A_REASON:
            report.error(document.path, line, f"rule `{rule}` is waived without a reason", "say why the set is kept")


WORDS_OF_A_REASON: Final = 3
"""Fewer say nothing."""


def layers_known(pinset: Pinset, document: documents.Document, report: issues.Report) -> None:
    """A pin names layers that the component has: in another one nothing is ever read."""
    known = components.load()
    for name, pin in pinset.pins.items():
        entry = known.get(ComponentName(name))
        if entry is None:
            continue
        may = (*entry.layers, *entry.further)
        for index, layer in enumerate(pin.layers or ()):
            if layer not in may:
                report.error(
                    document.path,
                    document.line("pins", name, "layers", index),
                    f"`{name}` has no layer `{layer.value}`",
                    f"it has {', '.join(one.value for one in may)}",
                )
        if pin.instances and entry.instance is None:
            line = document.line("pins", name, "instances")
            report.error(document.path, line, f"`{name}` is one per node: it has no slots")


def accept_is_short(pinset: Pinset, document: documents.Document, report: issues.Report) -> None:
    """A long list of equal values is a range in disguise."""
    for name, pin in pinset.pins.items():
        if len(pin.accept) > ACCEPT_LIMIT:
            line = document.line("pins", name, "accept")
            report.warning(document.path, line, f"`{name}` accepts {len(pin.accept)} values", "split the SKU instead")


ACCEPT_LIMIT: Final = 8
"""Values of one `accept:` list; firmware that ships in more versions at once is not one machine type."""

Check = Callable[[Pinset, documents.Document, issues.Report], None]
CHECKS: tuple[Check, ...] = (
    name_is_the_files,
    components_registered,
    versions_exact,
    waived_rules_known,
    layers_known,
    accept_is_short,
)
