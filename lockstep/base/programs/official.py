"""Programs that the machine already has: an official pulumi or kubectl on PATH is used as it is."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lockstep.base.programs import recipes

__all__ = ["KUBECTL_SKEW", "PULUMI_MINIMUM", "Verdict", "kubectl", "pulumi"]

PULUMI_MINIMUM = (3, 181)
"""The first CLI whose Automation API refreshes and destroys inline programs."""
KUBECTL_SKEW = 1
"""kubectl is supported within one minor version of the API server, older or newer."""
LANGUAGE_HOST = "pulumi-language-python"
_QUERY_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first candidate on PATH: its path where it serves, and why in words where it does not."""

    path: Path | None
    version: str
    reason: str


def pulumi(path: str | None = None) -> Verdict:
    """An official Pulumi CLI with its language host. ``path`` is given by tests only (None: PATH)."""
    for found in _candidates("pulumi", path):
        version = _say(str(found), ("version",))
        match = re.match(r"v?(\d+)\.(\d+)\.", version)
        if match is None:
            return Verdict(None, version, f"{found} does not say its version")
        if (int(match[1]), int(match[2])) < PULUMI_MINIMUM:
            wanted = ".".join(map(str, PULUMI_MINIMUM))
            return Verdict(None, version, f"{found} is {version}, older than {wanted}")
        if language_host(found) is None:
            return Verdict(None, version, f"{found} has no {LANGUAGE_HOST} beside it")
        return Verdict(found, version, "")
    return Verdict(None, "", "no pulumi on PATH")


def language_host(pulumi_path: Path) -> Path | None:
    """The language host in the folder of a CLI, by its own name or by where its link points."""
    for folder in (pulumi_path.parent, pulumi_path.resolve().parent):
        if (folder / LANGUAGE_HOST).is_file():
            return folder / LANGUAGE_HOST
    return None


def kubectl(minor: int, path: str | None = None) -> Verdict:
    """A kubectl that supports API servers of version 1.``minor``."""
    for found in _candidates("kubectl", path):
        said = _say(str(found), ("version", "--client", "--output=json"))
        try:
            version = str(json.loads(said)["clientVersion"]["gitVersion"])
        except (ValueError, KeyError, TypeError):
            return Verdict(None, "", f"{found} does not say its version")
        match = re.match(r"v1\.(\d+)\.", version)
        if match is None or abs(int(match[1]) - minor) > KUBECTL_SKEW:
            return Verdict(
                None, version, f"{found} is {version}, more than {KUBECTL_SKEW} minor version away from 1.{minor}"
            )
        return Verdict(found, version, "")
    return Verdict(None, "", "no kubectl on PATH")


def _candidates(name: str, path: str | None) -> Iterator[Path]:
    """Executables called ``name`` in the order of PATH, except links to what we built."""
    for folder in (path if path is not None else os.environ.get("PATH", os.defpath)).split(os.pathsep):
        found = shutil.which(name, path=folder) if folder else None
        if found is not None and not any((part / recipes.NOTE).is_file() for part in Path(found).resolve().parents[:2]):
            yield Path(found)


@functools.lru_cache(maxsize=32)
def _say(program: str, words: tuple[str, ...]) -> str:
    env = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=_QUERY_SECONDS, env=env, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
