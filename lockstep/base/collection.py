"""Python's cyclic garbage collector, put aside while many objects are made that all live on."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["paused"]


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """No collection inside: with 100,000 nodes in memory it looks through millions of objects that nothing frees,
    and costs a third of the time. Left as it was found; nests."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
