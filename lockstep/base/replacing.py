"""A file written whole or not at all, so that who reads it never sees half."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from lockstep.base import errors

__all__ = ["write"]


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Put ``text`` at ``path`` by a rename in its folder. Raises `errors.EngineError` when it cannot be written."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), mode)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
    except OSError as error:
        raise errors.EngineError(f"cannot write {path}: {error.strerror}", hint="see space and rights there") from error
