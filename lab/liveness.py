"""Whether a node lives, from two small reads and next to no imports: a watcher asks it once a second."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ALIVE_LABEL", "alive", "folder", "marked"]

ALIVE_LABEL = "lab.lockstep.dev/alive"
"""On Nodes whose lab node lives; kwok serves only Nodes that carry it with the value ``true``."""


def folder(state: Path, name: str) -> Path:
    """The node's folder in the lab's state folder."""
    return state / "nodes" / name


def marked(file: Path) -> tuple[int, str] | None:
    """(pid, mark) of a pid file whose process lives and carries the mark in its arguments; else None.

    The mark is random and new for every start: a recycled pid cannot carry it, and a zombie has no arguments.
    """
    try:
        pid, mark = file.read_text().split()
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    return (int(pid), mark) if mark.encode() in arguments else None


def alive(state: Path, node: str) -> bool:
    """Whether the node's pid 1 lives now."""
    return marked(folder(state, node) / "pid1") is not None
