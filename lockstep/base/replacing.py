"""A file written whole or not at all, so that who reads it never sees half."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lockstep.base import errors

__all__ = ["opened", "write"]


@contextlib.contextmanager
def opened(path: Path, *, mode: int = 0o600) -> Iterator[IO[bytes]]:
    """A file to write, put at ``path`` by a rename in its folder when the block ends well; else nothing changes.

    Raises `errors.EngineError` when it cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
    except OSError as error:
        raise errors.EngineError(f"cannot write {path}: {error.strerror}", hint="see space and rights there") from error


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Put ``text`` at ``path`` whole or not at all. Raises as `opened` does."""
    with opened(path, mode=mode) as file:
        file.write(text.encode("utf-8"))
