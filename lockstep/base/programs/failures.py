"""From the last lines of a failed build to its cause and remedy."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from lockstep.base import errors

__all__ = ["LAST_LINES", "build_failed", "disk_full"]

LAST_LINES = 12
"""Enough for a compiler error with its place, few enough to read."""

_DISK = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_MEMORY = re.compile(r"signal: killed|cannot allocate memory|out of memory", re.IGNORECASE)
_CHECKSUM = re.compile(r"checksum mismatch|SECURITY ERROR|missing go\.sum entry|updates to go\.mod needed|HASHES")
_NETWORK = re.compile(
    r"dial tcp|connection refused|connection reset|no such host|i/o timeout|handshake timeout|network is unreachable"
    r"|proxyconnect|certificate signed by unknown|50[0234] |Bad Gateway|Service Unavailable|NewConnectionError"
    r"|Max retries exceeded|No matching distribution|Temporary failure in name resolution",
    re.IGNORECASE,
)


def build_failed(what: str, lines: Sequence[str], command: str, *, places: Sequence[Path] = ()) -> errors.EngineError:
    """The error of a build that ended badly.

    ``what`` names the module, ``lines`` is what it printed, ``command`` what builds it again,
    ``places`` the folders that fill during a build.
    """
    text = "\n".join(lines)
    last = "\n".join(f"  | {line}" for line in list(lines)[-LAST_LINES:])
    return errors.EngineError(
        f"{what} failed\n{last}" if last else f"{what} failed", hint=_remedy(text, command, places)
    )


def disk_full(error: OSError, what: str, command: str, places: Sequence[Path]) -> errors.EngineError:
    """The error for an `OSError` of our own file work; ENOSPC and EDQUOT get their remedy."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = _room(places, command) if full else f"mend that, then: {command}"
    where = f"{error.filename}: " if error.filename else ""
    return errors.EngineError(f"{what} failed: {where}{error.strerror}", hint=hint)


def _remedy(text: str, command: str, places: Sequence[Path]) -> str:
    if _DISK.search(text):
        return _room(places, command)
    if _CHECKSUM.search(text):
        return "what was downloaded is not what is committed here: git status tools requirements; never edit a checksum"
    if _NETWORK.search(text):
        proxy = os.environ.get("GOPROXY")
        mirror = (
            f"GOPROXY is {proxy}" if proxy else "a mirror is set with GOPROXY (modules) and pip's index-url (wheels)"
        )
        return f"the package registry could not be reached; {mirror}; then: {command}"
    if _MEMORY.search(text):
        return f"the machine ran out of memory; stop other work, then: {command}"
    return f"mend what the last lines say, then: {command}"


def _room(places: Sequence[Path], command: str) -> str:
    free = ", ".join(f"{place} has {shutil.disk_usage(place).free >> 20} MiB" for place in places if place.is_dir())
    free = f" ({free})" if free else ""
    return (
        f"the disk is full{free}; free some space, or set XDG_CACHE_HOME, GOCACHE and TMPDIR to a larger disk;"
        f" then: {command}"
    )
