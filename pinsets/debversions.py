"""Debian version numbers: order and relations, as deb-version(7) and dpkg define them."""

from __future__ import annotations

import functools
import itertools
import re

__all__ = ["compare", "satisfies", "sort_key"]

_CHUNKS = re.compile(r"([^0-9]*)([0-9]*)")


def compare(left: str, right: str) -> int:
    """Negative, zero or positive: ``left`` is older, equal, newer."""
    for one, other in zip(_split(left), _split(right), strict=True):
        if (order := _compare_part(one, other)) != 0:
            return order
    return 0


sort_key = functools.cmp_to_key(compare)
"""For `sorted` and `max`."""


def satisfies(version: str, relation: str, wanted: str) -> bool:
    """Whether ``version`` stands in that relation (``<<``, ``<=``, ``=``, ``>=``, ``>>``) to ``wanted``.

    The old ``<`` and ``>`` mean ``<=`` and ``>=``, as dpkg reads them. Raises ValueError for any other.
    """
    order = compare(version, wanted)
    match relation:
        case "=":
            return order == 0
        case "<<":
            return order < 0
        case "<=" | "<":
            return order <= 0
        case ">=" | ">":
            return order >= 0
        case ">>":
            return order > 0
        case _:
            raise ValueError(f"{relation!r} is no relation")


def _split(version: str) -> tuple[str, str, str]:
    """(epoch, upstream, revision); a missing revision equals ``0``, as an empty one does."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, hyphen, revision = rest.rpartition("-")
    return (epoch, upstream, revision) if hyphen else (epoch, rest, "")


def _compare_part(left: str, right: str) -> int:
    """dpkg's verrevcmp: texts and numbers in turn, ``~`` before everything, letters before other characters."""
    pairs = itertools.zip_longest(_CHUNKS.findall(left), _CHUNKS.findall(right), fillvalue=("", ""))
    for (words, digits), (other_words, other_digits) in pairs:
        for one, other in itertools.zip_longest(words, other_words):
            if (order := _weight(one) - _weight(other)) != 0:
                return order
        if (order := _compare_numbers(digits.lstrip("0"), other_digits.lstrip("0"))) != 0:
            return order
    return 0


def _compare_numbers(left: str, right: str) -> int:
    """By length and then as texts: a number of ten thousand digits is one too."""
    return ((len(left), left) > (len(right), right)) - ((len(left), left) < (len(right), right))


def _weight(character: str | None) -> int:
    if character is None:
        return 0
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256
