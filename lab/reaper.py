"""``python -m lab.reaper STATE``: tear a test's lab down and remove it. Safe when there is nothing left."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

from lab import claims, labs
from lockstep.base import errors, settings

__all__ = ["reap"]

PATIENCE_SECONDS = 30.0


def reap(state: Path) -> None:
    """End and remove the lab, also one whose folder is gone; waits for another command that still works on it."""
    where = dataclasses.replace(settings.load(), labs=state.parent)
    limit = time.monotonic() + PATIENCE_SECONDS
    while claims.maker_lives(state) and time.monotonic() < limit:
        time.sleep(0.2)  # a `lab up` that outlives the test would start what nobody ends
    while True:
        try:
            labs.down(state.name, lambda _line: None, wipe=True, config=where)
        except errors.BusyError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.2)
        if not state.is_dir():
            return


if __name__ == "__main__":
    reap(Path(sys.argv[1]))
