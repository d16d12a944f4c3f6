"""Where things lie, read once from the environment. No other module reads these variables."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import lockstep
from lockstep.base import errors

__all__ = ["Settings", "find_checkout", "load"]

MARKER = "Pulumi.yaml"
LAB_MARKER = "lab.json"
"""File in the state folder of every lab."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Paths of this run; all absolute."""

    checkout: Path | None
    """Root of the checkout (the folder of Pulumi.yaml); None for an installed wheel run elsewhere."""
    state: Path
    """Journal, snapshots, keys, known_hosts; 0700. `LOCKSTEP_STATE`, else `.lockstep/` of the checkout or here."""
    cache: Path
    """Built tools, base trees: anything that can be made again. `$XDG_CACHE_HOME/lockstep`."""
    labs: Path
    """One folder per lab with its whole state. `LOCKSTEP_LABS`, else /var/lib/lockstep/labs."""
    state_given: bool = False
    """Whether `LOCKSTEP_STATE` named the state folder."""

    def of_fleet(self, name: str) -> Settings:
        """The settings for one fleet: a lab that is there keeps its own state, unless `LOCKSTEP_STATE` says another.

        `lockstep up lab` writes the lab's journal there; a reading that looked elsewhere would not know its locks.
        """
        own = self.labs / name
        return self if self.state_given or not (own / LAB_MARKER).is_file() else replace(self, state=own)

    def need_checkout(self, verb: str) -> Path:
        """The checkout's root; raises `errors.InputError` where there is none, or it is another version."""
        if self.checkout is None:
            raise errors.InputError(
                f"`lockstep {verb}` works inside a checkout and none was found above {Path.cwd()}",
                hint=f"cd into the checkout (the folder with {MARKER}), or name it by --root or LOCKSTEP_ROOT",
            )
        _same_version(self.checkout)
        return self.checkout


def _same_version(checkout: Path) -> None:
    """An installed lockstep must not act by the declarations of another version's checkout."""
    project = checkout / "pyproject.toml"
    if not project.is_file():
        return  # declarations alone, made by hand: they name no version
    try:
        declared = tomllib.loads(project.read_text())["project"]["version"]
    except (OSError, ValueError, KeyError) as error:
        raise errors.InputError("its version cannot be read", place=str(project)) from error
    if declared != lockstep.__version__:
        raise errors.InputError(
            f"the checkout is version {declared}, the lockstep that runs is {lockstep.__version__}",
            place=str(checkout),
            hint=f"run {checkout}/.venv/bin/lockstep (made by `make`), or check out the version you run",
        )


def find_checkout(start: Path) -> Path | None:
    """The nearest folder at or above ``start`` that holds Pulumi.yaml and our inventory."""
    for folder in (start, *start.parents):
        if (folder / MARKER).is_file() and (folder / "inventory").is_dir():
            return folder
    return None


def load(environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> Settings:
    """Settings of this process; ``environ`` and ``cwd`` are given by tests only."""
    env = os.environ if environ is None else environ
    here = Path.cwd() if cwd is None else cwd
    root = env.get("LOCKSTEP_ROOT")
    checkout = find_checkout(Path(root).resolve() if root else here)
    if root and checkout is None:
        raise errors.InputError(f"no checkout at {root}", place="LOCKSTEP_ROOT", hint=f"it must hold {MARKER}")
    home = Path(env.get("HOME") or "/root")
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache") / "lockstep"
    state = Path(env["LOCKSTEP_STATE"]) if env.get("LOCKSTEP_STATE") else (checkout or here) / ".lockstep"
    labs = Path(env.get("LOCKSTEP_LABS") or "/var/lib/lockstep/labs")
    return Settings(checkout, state.absolute(), cache.absolute(), labs.absolute(), bool(env.get("LOCKSTEP_STATE")))
