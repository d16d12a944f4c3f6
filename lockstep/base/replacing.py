"""A file written whole or not at all, so that who reads it never sees half; a device or a pipe as what it is."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lockstep.base import errors

__all__ = ["check", "opened", "write"]

_STREAMS = ("/dev", "/dev/fd", "/proc/self/fd")
"""Folders whose entries are no files of their own: `/dev/stdout` is a link, and root could replace it."""


def check(path: Path, option: str) -> None:
    """Whether a file can be put at ``path``, before any work is done for it. Raises `errors.InputError`."""
    folder = path.parent
    if path.is_dir():
        raise errors.InputError(f"{path} is a folder", place=option, hint="name a file in it")
    if not folder.is_dir():
        raise errors.InputError(f"there is no folder {folder}", place=option, hint="make it first")
    if not _is_stream(path) and not os.access(folder, os.W_OK | os.X_OK):
        raise errors.InputError(f"nothing can be written in {folder}", place=option, hint="see your rights there")


def _is_stream(path: Path) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or os.path.abspath(path.parent) in _STREAMS


@contextlib.contextmanager
def opened(path: Path, *, mode: int = 0o600) -> Iterator[IO[bytes]]:
    """A file to write, put at ``path`` by a rename in its folder when the block ends well; else nothing changes.

    A device, a pipe or a stream of ours is written to and never replaced. Raises `errors.EngineError` when it cannot
    be written.
    """
    try:
        if _is_stream(path):
            with open(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
                yield file
            return
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
