"""A verb that a service manager ends (SIGTERM) cleans up as one that a person ends (Ctrl-C)."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["cleanly"]


@contextlib.contextmanager
def cleanly() -> Iterator[None]:
    """SIGTERM in the block raises `KeyboardInterrupt` there; when that has passed through, the process dies by SIGTERM.

    By the signal and not by a code of ours: a service manager takes that for the end that it asked for. A second one
    does not cut the cleaning. Outside the main thread nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) == 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
        if asked:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGTERM)
