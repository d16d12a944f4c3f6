"""Host ranges such as ``gpu-[001-512]``, by ClusterShell's NodeSet.

The one place that touches ClusterShell: its import is not free and its errors are its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.base import errors, limits

__all__ = ["fold", "unfold"]


def unfold(pattern: str, *, place: str | None = None) -> list[str]:
    """``gpu-[001-003]`` → ``["gpu-001", "gpu-002", "gpu-003"]``, in order, padding kept.

    Raises `errors.InputError` for a pattern that is empty, malformed, asks for a
    group source (``@group``), or unfolds to more than `limits.NODES_PER_PATTERN` names.
    """
    # Late: 40 ms that `lockstep --help` should not pay.
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    if not pattern.strip():
        raise errors.InputError("empty host range", place=place, hint="write for example gpu-[001-004]")
    if "@" in pattern:
        # NodeSet would run the commands of the machine's group configuration for it.
        raise errors.InputError(f"host groups are not read: {pattern!r}", place=place, hint="write the hosts out")
    try:
        nodes = NodeSet(pattern)
        if len(nodes) > limits.NODES_PER_PATTERN:
            raise errors.InputError(
                f"{pattern!r} unfolds to {len(nodes)} hosts, more than {limits.NODES_PER_PATTERN}", place=place
            )
        return [str(name) for name in nodes]
    except NodeSetException as error:
        raise errors.InputError(
            f"not a host range: {pattern!r} ({error})", place=place, hint="write for example gpu-[001-004]"
        ) from error


def fold(names: Iterable[str]) -> str:
    """The inverse of `unfold`, for people: ``gpu-[001-003]``. Any order, duplicates dropped."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    listed = list(names)
    try:
        return str(NodeSet.fromlist(listed))
    except NodeSetException:
        return ",".join(sorted(set(listed)))
