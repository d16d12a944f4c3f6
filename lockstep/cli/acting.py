"""Progress and results of acting verbs on a terminal; one plain line per event where there is none."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from bringup.replace import Replaced
    from bringup.results import Event, PoolResult

__all__ = ["Show", "print_replaced", "print_result"]

_QUIET = frozenset({"in-step", "admitted", "mended", "staged", "adopted"})
"""Outcomes that are counted; every other node is named."""


class Show:
    """A bar per pool while a run lasts."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Show:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def event(self, event: Event) -> None:
        """Show one event; called from any thread."""
        if event.pool not in self._tasks:
            self._tasks[event.pool] = self._bars.add_task(event.pool, total=None)
        words = [event.pool, event.node or "", event.stage or "", event.text]
        line = "  ".join(escape(word) for word in words if word)
        if event.done is not None:
            self._bars.update(self._tasks[event.pool], completed=event.done, total=event.total)
        self._bars.update(self._tasks[event.pool], description=line[:100])
        if not self._console.is_terminal or event.node is None:
            self._console.print(line, soft_wrap=True)


def print_result(result: PoolResult) -> None:
    """How a pool ended: numbers, every node that is not as it should be, and the notes."""
    console = Console(highlight=False)
    counts = Counter(str(node.outcome) for node in result.nodes.values())
    numbers = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    console.print(f"{escape(result.pool)}: {numbers}; lock {result.lock[:16]}", soft_wrap=True)
    for node in result.nodes.values():
        if str(node.outcome) not in _QUIET:
            console.print(f"  {escape(node.node)}: {node.outcome}", soft_wrap=True)
            for reason in node.reasons:
                console.print(f"    {escape(reason)}", soft_wrap=True)
    for note in result.notes:
        console.print(f"  note: {escape(note)}", soft_wrap=True)


def print_replaced(done: Replaced) -> None:
    """How a replacement ended, and the fleet file's change as a patch when it was not written."""
    console = Console(highlight=False)
    console.print(
        f"{escape(done.node)}: replaced, generation {done.generation}, serial {escape(done.serial or 'unknown')},"
        f" lock {done.lock[:16]}, {done.seconds:.0f} s to repair",
        soft_wrap=True,
    )
    for note in done.notes:
        console.print(f"  note: {escape(note)}", soft_wrap=True)
    if done.changes.written:
        console.print(f"  {escape(str(done.changes.path))}: generation {done.generation} written")
    elif done.changes.patch:
        print(done.changes.patch, end="")
