"""Files of the control plane: private, and never half written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from lockstep.base import errors

__all__ = ["ensure_folder", "locked", "write_private"]

LOCK_SECONDS = 30.0
"""A stop takes a few seconds; a start may take longer, and is not worth waiting for."""


def write_private(path: Path, content: str | bytes) -> None:
    """Replace a file in one step, 0600 from its first byte on; one that is so already is left as it is."""
    data = content.encode() if isinstance(content, str) else content
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_mode & 0o777 == 0o600 and path.read_bytes() == data:
            return
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)
    fresh.replace(path)


def ensure_folder(path: Path) -> Path:
    """The folder, made if missing, 0700 in any case."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; `errors.BusyError` when another process keeps it for `LOCK_SECONDS`."""
    limit = time.monotonic() + LOCK_SECONDS
    with path.open("a") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise errors.BusyError(
                        f"{what} is being started or stopped by another process", place=str(path)
                    ) from None
                time.sleep(0.1)
        yield
