"""Parts of a replacement: who may be replaced, emptying a machine that may be dead, changing the fleet file."""

from __future__ import annotations

import difflib
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bringup import consent, reading
from bringup.cluster import Cluster
from bringup.power import PowerDriver
from bringup.words import Words
from inventory import editing
from inventory.model import Fleet, Kind, Node, NodeState, Pool
from lockstep.base import errors, journal, limits

__all__ = ["FileChange", "StepAct", "change_file", "check_allowed", "drain"]

StepAct = Callable[[], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of the fleet file."""

    path: Path
    patch: str
    """Unified diff; empty when the file said it already."""
    written: bool


def check_allowed(
    fleet: Fleet,
    pool: Pool,
    node: Node,
    words: Words,
    book: journal.Journal,
    cluster: Cluster | None,
    driver: PowerDriver,
) -> None:
    """Raise `errors.RefusedError` unless the node failed, or this run names it, and the kind is allowed.

    Failed is: fenced, NotReady, powered off, or declared in repair.
    """
    if node.state is NodeState.HELD:
        raise errors.RefusedError(f"declared held by {node.holder or 'somebody'}", place=node.name)
    named = (Kind.REIMAGE, node.name) in words.allow_nodes
    if not named and Kind.REIMAGE not in consent.allowed_kinds(pool, words, node.name):
        raise errors.RefusedError(
            "needs kind reimage, which neither the pool's policy nor this run allows",
            place=node.name,
            hint=f"--allow reimage={node.name}, or --allow reimage for a node that failed",
        )
    if not named and (healthy := _healthy(node, book, cluster, driver)) is not None:
        raise errors.RefusedError(
            f"the node does not look failed: {healthy}",
            place=node.name,
            hint=f"declare it `state: repair`, or say --allow reimage={node.name}",
        )


def _healthy(node: Node, book: journal.Journal, cluster: Cluster | None, driver: PowerDriver) -> str | None:
    """Why the node does not count as failed; None when it does."""
    if node.state is NodeState.REPAIR:
        return None
    fence = book.fences().get(node.name)
    if fence is not None and fence.kind is journal.FenceKind.FENCED:
        return None
    if driver.state() == "off":
        return None
    view = cluster.node(node.name) if cluster is not None else None
    if view is None:
        return "powered on, not fenced, and no Node of a cluster says NotReady"
    return "its Node is Ready and not fenced" if view.ready and not view.fenced else None


def drain(
    fleet: Fleet,
    pool: Pool,
    node: Node,
    book: journal.Journal,
    cluster: Cluster | None,
    driver: PowerDriver,
    say: Callable[[str], None],
) -> str:
    """Wait up to `disruption.wait` until nothing runs there; a sentence that says why it counts as drained.

    A machine that is off runs nothing; of one that neither answers nor is Ready
    nobody can tell, and nothing there can end by waiting. Raises `errors.BusyError`
    when something still runs at the limit.
    """
    deadline = time.monotonic() + pool.disruption.wait
    while True:
        if driver.state() == "off":
            return "powered off: nothing runs there"
        occupant = _occupant(fleet, node, book, cluster)
        if occupant is None:
            return "vacant"
        if occupant == "":
            return "neither answers nor is Ready: what ran there is lost already"
        if time.monotonic() >= deadline:
            raise errors.BusyError(
                f"not vacant after {pool.disruption.wait} s: {occupant}",
                place=node.name,
                hint="end what runs there and run the same command again; the node stays cordoned meanwhile",
            )
        say(f"waits to become vacant: {occupant}")
        time.sleep(min(limits.VACATE_POLL_SECONDS, max(deadline - time.monotonic(), 0.1)))


def _occupant(fleet: Fleet, node: Node, book: journal.Journal, cluster: Cluster | None) -> str | None:
    """Who is there; None for nobody, the empty string when neither the node nor its Node can tell any more."""
    facts = reading.read_nodes(fleet, [node.name], journal=book).nodes.get(node.name)
    view = cluster.node(node.name) if cluster is not None and not node.spare else None
    answers = facts is not None and facts.unreachable is None
    if not answers and (view is None or not view.ready):
        return ""
    if not answers or facts is None:
        return "its Node is Ready, but it cannot be read"
    if facts.busy is None:
        return "whether a process holds a GPU is not known"
    if facts.busy:
        return f"a process holds a GPU: {facts.busy[0]}"
    pods = cluster.pods_on(node.name) if cluster is not None and view is not None and view.ready else []
    return f"pod {pods[0]}" if pods else None


def change_file(fleet: Fleet, node: Node, generation: int, serial: str, *, write: bool) -> FileChange:
    """Write the new generation (and serial, where one is declared) into the fleet file; a repair is over."""
    values: dict[str, str | int | None] = {}
    if node.generation != generation:
        values["generation"] = generation
    if node.serial is not None and serial and node.serial != serial:
        values["serial"] = serial
    if node.state is NodeState.REPAIR:
        values |= {"state": str(NodeState.IN_SERVICE), "holder": None}
    text = fleet.path.read_text(encoding="utf-8")
    new = editing.update_node(text, node.name, values, place=str(fleet.path)) if values else text
    name = fleet.path.name
    patch = "".join(
        difflib.unified_diff(text.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{name}", f"b/{name}")
    )
    if write and new != text:
        _write(fleet.path, new)
    return FileChange(fleet.path, patch, write and new != text)


def _write(path: Path, text: str) -> None:
    """Beside, then over: a reader or a kill sees the old file or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, path.stat().st_mode & 0o7777)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
