"""RPM version numbers: order of ``epoch:version-release``, as rpm's ``rpmvercmp`` defines it."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

__all__ = ["Evr", "compare", "parse", "sort_key"]

_SEGMENT = re.compile(r"[~^]|[0-9]+|[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Evr:
    """Epoch, version and release apart."""

    epoch: int
    version: str
    release: str | None
    """None: not given, which then counts as equal to any."""

    def __str__(self) -> str:
        head = f"{self.epoch}:" if self.epoch else ""
        return f"{head}{self.version}" + (f"-{self.release}" if self.release is not None else "")


def parse(text: str) -> Evr:
    """``3:580.126.20-1.el9`` → its parts; a missing epoch is 0, as rpm takes it."""
    head, colon, rest = text.partition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,9}", head):
        head, rest = "0", text
    version, hyphen, release = rest.rpartition("-")
    return Evr(int(head), version if hyphen else rest, release if hyphen else None)


def compare(left: str | Evr, right: str | Evr) -> int:
    """Negative, zero or positive: ``left`` is older, equal, newer. Releases count only where both have one."""
    one = parse(left) if isinstance(left, str) else left
    other = parse(right) if isinstance(right, str) else right
    if one.epoch != other.epoch:
        return -1 if one.epoch < other.epoch else 1
    if (order := _compare_part(one.version, other.version)) != 0:
        return order
    if one.release is None or other.release is None:
        return 0
    return _compare_part(one.release, other.release)


sort_key = functools.cmp_to_key(compare)
"""For `sorted` and `max`."""


def _compare_part(left: str, right: str) -> int:
    """rpmvercmp: numbers by value, numbers above letters, ``~`` before the end, ``^`` after it."""
    if left == right:
        return 0
    ones, others = _SEGMENT.findall(left), _SEGMENT.findall(right)
    for one, other in zip(ones, others, strict=False):
        if (order := _compare_segment(one, other)) != 0:
            return order
    if len(ones) == len(others):
        return 0
    longer = ones[len(others)] if len(ones) > len(others) else others[len(ones)]
    sign = 1 if len(ones) > len(others) else -1
    return -sign if longer == "~" else sign


def _compare_segment(one: str, other: str) -> int:
    if one == other:
        return 0
    for mark, order in (("~", -1), ("^", -1)):
        # A caret is newer than the end, yet older than anything else that may follow.
        if one == mark:
            return order
        if other == mark:
            return -order
    if one.isdigit() != other.isdigit():
        return 1 if one.isdigit() else -1
    if one.isdigit():
        # By length and then as texts: a number of ten thousand digits is one too.
        left, right = one.lstrip("0"), other.lstrip("0")
        return ((len(left), left) > (len(right), right)) - ((len(left), left) < (len(right), right))
    return (one > other) - (one < other)
