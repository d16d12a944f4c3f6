"""Order of versions, for ranges in rules: which of two is newer depends on the component.

Equality stays with `pinsets.normalisers`. What has no order (makers' firmware names,
part numbers) is compared as text and lies in no range.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from lockstep.base.names import ComponentName
from pinsets import components

__all__ = ["DOTTED", "Key", "Range", "key", "of_component", "parse_range"]

DOTTED: Final = "dotted"
"""Decimal numbers between points, two or three of them or more: the usual order."""

_ORDER: Final = MappingProxyType(
    {
        "vbios": "hex",
        "kernel": "kernel",
        "ofed": "kernel",
        "doca": "kernel",
        "caseless": "none",
        "upper": "none",
        "plain": "none",
        "flavour": "none",
        "os": "none",
        "listing": "none",
        "assignments": "none",
        "words": "none",
        "switch": "none",
        "hexdigest": "none",
        "nps": "none",
        "clocks": "none",
    }
)
"""Normaliser → order of what it gives; `DOTTED` for the others."""

_FORMS: Final = MappingProxyType(
    {
        DOTTED: re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})*(?![0-9])"),
        "kernel": re.compile(r"[0-9]{1,18}(?:[.-][0-9]{1,18})*(?![0-9])"),
        "hex": re.compile(r"[0-9A-Fa-f]{1,16}(?:\.[0-9A-Fa-f]{1,16})+(?![0-9A-Fa-f])"),
    }
)

Key = tuple[tuple[int, ...], int]
"""Numbers without zeros at the end, and 0 for a candidate (``-rc.1``), 1 for a release."""

_CANDIDATE = re.compile(r"[-~.]?(rc|alpha|beta|pre)", re.IGNORECASE)
_RELATIONS: Final = (">=", "<=", ">", "<")


@functools.cache
def of_component(component: str) -> str:
    """The order of a component's versions: a key for `key`."""
    entry = components.load().get(ComponentName(component))
    return _ORDER.get(entry.normaliser, DOTTED) if entry is not None else DOTTED


@functools.lru_cache(maxsize=16_384)
def key(order: str, text: str) -> Key | None:
    """What sorts a version; None for text that has no place in that order.

    ``595.80`` and ``580.105.08`` compare number by number, whatever their count;
    letters behind the numbers (``1.22.0amzn1.0``, ``6.8.0-1024-nvidia``) do not count.
    """
    form = _FORMS.get(order)
    match = form.match(text) if form is not None else None
    if match is None:
        return None
    base = 16 if order == "hex" else 10
    numbers = [int(part, base) for part in re.split(r"[.-]", match[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), 0 if _CANDIDATE.match(text, match.end()) else 1


@dataclass(frozen=True, slots=True)
class Range:
    """One or more bounds that all hold; as text ``>=570.124.06 <=570.158.01``, ``1.17.*``, ``2.18.1``."""

    text: str
    bounds: tuple[tuple[str, str], ...]
    """(relation, version): ``>=``, ``<=``, ``>``, ``<``, ``=``, or ``*`` for everything that begins so."""

    def holds(self, order: str, text: str) -> bool | None:
        """Whether a version lies in it; None where the order cannot tell."""
        truths = [_holds(relation, bound, order, text) for relation, bound in self.bounds]
        return False if False in truths else None if None in truths else True


def parse_range(text: str) -> Range:
    """A range from its text. Raises ValueError."""
    bounds = []
    for word in text.split():
        relation = next((sign for sign in _RELATIONS if word.startswith(sign)), "=")
        version = word.removeprefix(relation) if relation != "=" else word
        if relation == "=" and version.endswith(".*"):
            relation, version = "*", version[:-2]
        if not version or version[0] in "<>=!~^" or "*" in version:
            raise ValueError(f"{text!r} is no range; write `>=1.2 <2`, `1.17.*` or one exact version")
        bounds.append((relation, version))
    if not bounds:
        raise ValueError("a range is empty")
    return Range(text, tuple(bounds))


def _holds(relation: str, bound: str, order: str, text: str) -> bool | None:
    if relation == "=" and text == bound:
        return True
    left, right = key(order, text), key(order, bound)
    if relation == "=" and order == "none":
        return False
    if left is None or right is None:
        return None
    match relation:
        case "=":
            return left == right
        case "*":
            wanted = [int(part, 16 if order == "hex" else 10) for part in re.split(r"[.-]", bound)]
            have = [*left[0], *[0] * len(wanted)]
            return have[: len(wanted)] == wanted
        case ">=":
            return left >= right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left < right
