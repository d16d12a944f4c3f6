"""A progress bar on standard error, shown only when a person looks at it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from bringup.sweep import Progress

__all__ = ["Bar"]


class Bar:
    """Follows a sweep. A context manager; `advance` is the sweep's callback."""

    def __init__(self, word: str) -> None:
        self._word = word
        self._shown = sys.stderr.isatty()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._second_pass = False
        self._failed = 0

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, progress: Progress) -> None:
        """One more node was tried."""
        if not self._shown:
            return
        if self._bar is None:
            self._start()
        assert self._bar is not None  # noqa: S101 - started in the line above
        assert self._task is not None  # noqa: S101 - likewise
        if progress.second_pass and not self._second_pass:
            self._second_pass = True
            self._failed = 0
            self._bar.reset(self._task, description=f"{self._word} again what failed")
        self._failed += progress.failure is not None
        note = f"{progress.node}" + (f" · {self._failed} without answer" if self._failed else "")
        self._bar.update(self._task, completed=progress.done, total=progress.total, note=note)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self._word, total=None, note="")
        self._bar.start()
