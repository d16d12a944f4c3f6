"""Host ranges such as ``gpu-[001-512]``, by ClusterShell's NodeSet.

The one place that touches ClusterShell: its import is not free and its errors are its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lockstep.base import errors, limits, plaintext

__all__ = ["fold", "unfold"]


def unfold(pattern: str, *, place: str | None = None) -> list[str]:
    """``gpu-[001-003]`` → ``["gpu-001", "gpu-002", "gpu-003"]``, in order, padding kept.

    Raises `errors.InputError` for a pattern that is empty, malformed, asks for a
    group source (``@group``), or unfolds to more than `limits.NODES_PER_PATTERN` names.
    """
    if (simple := _simple(pattern)) is not None:
        return simple
    # Late: 40 ms that `lockstep --help` should not pay.
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    if not pattern.strip():
        raise errors.InputError("empty host range", place=place, hint="write for example gpu-[001-004]")
    if "@" in pattern:
        # NodeSet would run the commands of the machine's group configuration for it.
        raise errors.InputError(f"host groups are not read: {pattern!r}", place=place, hint="write the hosts out")
    # Counted before NodeSet sees it, which holds every number of a range: `a[1-999999999]` must not fill the memory.
    if (count := sum(_count(part) for part in _parts(pattern))) > limits.NODES_PER_PATTERN:
        raise errors.InputError(
            f"{pattern!r} unfolds to {count} hosts, more than {limits.NODES_PER_PATTERN}", place=place
        )
    try:
        parts = [NodeSet(part) for part in _parts(pattern)]
        return list(dict.fromkeys(str(name) for part in parts for name in part))
    except NodeSetException as error:
        raise errors.InputError(
            f"not a host range: {pattern!r} ({error})", place=place, hint="write for example gpu-[001-004]"
        ) from error


# Digits that touch a bracket are left to NodeSet, which reads them as part of the number: `n1[0-10]` is n10 to n110.
_ONE_RANGE = re.compile(r"([\w.:-]*)(?<!\d)\[(\d+)-(\d+)\](?!\d)([\w.:-]*)", re.ASCII)


def _simple(pattern: str) -> list[str] | None:
    """Names of one plain range, as NodeSet gives them at a tenth of its time; None for anything else."""
    match = _ONE_RANGE.fullmatch(pattern)
    if match is None:
        return None
    before, first, last, after = match.groups()
    padded = first.startswith("0") and len(first) > 1
    if (padded and len(first) != len(last)) or not 0 <= int(last) - int(first) < limits.NODES_PER_PATTERN:
        return None
    width = len(first) if padded else 0
    return [f"{before}{number:0{width}d}{after}" for number in range(int(first), int(last) + 1)]


def _parts(pattern: str) -> list[str]:
    """``pattern`` split at the commas outside brackets; whole where set operators (``!``, ``&``, ``^``) bind the parts.

    A NodeSet has no order of its own, and what is written first should come first.
    """
    if set(pattern) & set("!&^"):
        return [pattern]
    parts = re.split(r",(?![^\[]*\])", pattern)
    return [part for part in parts if part.strip()] or [pattern]


def _count(part: str) -> int:
    """How many names a part stands for at most; 1 for what is no range, which NodeSet then refuses or takes."""
    total = 1
    for inside in re.findall(r"\[([^\]]*)\]", part):
        here = 0
        for one in inside.split(","):
            match = re.fullmatch(r"\s*(\d+)(?:-(\d+)(?:/(\d+))?)?\s*", one)
            here += max(1, int(match[2] or match[1]) - int(match[1]) + 1) // max(1, int(match[3] or 1)) if match else 1
        total *= max(1, here)
    return total


def fold(names: Iterable[str]) -> str:
    """The inverse of `unfold`, for people: ``gpu-[001-003]``. Any order, duplicates dropped."""
    listed = list(names)
    if not all(plaintext.is_host_name(name) for name in listed):
        # NodeSet reads `!`, `&`, brackets and blanks as more than text.
        return ",".join(sorted(set(listed)))
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return str(NodeSet.fromlist(listed))
    except NodeSetException:
        return ",".join(sorted(set(listed)))
