"""Which pinsets to lock for a fleet, from which repositories, and doing it: all of them or none is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.base import documents, errors, issues
from pinsets import apt, load, locking, repositories
from pinsets.model import Lock

if TYPE_CHECKING:
    from inventory.model import Fleet

__all__ = ["Made", "Target", "run", "sources", "targets"]


@dataclass(frozen=True, slots=True)
class Target:
    """One lock to make."""

    pinset: str
    os: str


@dataclass(frozen=True, slots=True)
class Made:
    """One lock that was made."""

    path: Path
    lock: Lock
    written: bool
    """False: the file already held exactly this."""


def targets(
    fleet: Fleet, catalogue: load.Catalogue, names: Sequence[str] = (), os_name: str | None = None
) -> list[Target]:
    """What to lock: each pool's pinset, or ``names`` for ``os_name``, else for the OS of every pool whose SKU fits.

    Raises `errors.InputError` for an unknown pinset, or one that no pool's SKU fits.
    """
    found: dict[Target, None] = {}
    if not names:
        if os_name is not None:
            raise errors.InputError("--os needs --pinset", hint="pools say their own OS")
        found.update({Target(str(pool.pinset), pool.os): None for pool in fleet.pools})
    for name in names:
        skus = load.pinset(name, catalogue).sku
        oses = [os_name] if os_name is not None else [pool.os for pool in fleet.pools if pool.sku.sku in skus]
        if not oses:
            raise errors.InputError(
                f"no pool of fleet {fleet.name} has SKU {', '.join(skus)}, for which pinset {name} is made",
                hint="say the operating system: --os debian-12-amd64",
            )
        found.update({Target(name, os): None for os in oses})
    return list(found)


def sources(fleet: Fleet, given: Sequence[str] = ()) -> list[repositories.Source]:
    """The fleet's repositories, or ``given`` folders and URLs: flat, with the key of the fleet's first repository.

    Raises `errors.InputError` when there are none.
    """
    if given:
        key = next((entry.key for entry in fleet.repositories if entry.key is not None), None)
        return [repositories.Source(_address(text), key=key if _signed(text, key) else None) for text in given]
    if not fleet.repositories:
        raise errors.InputError(
            f"fleet {fleet.name} names no repository", hint="add `repositories:`, or give --repository"
        )
    return [repositories.Source(one.apt, one.suite, one.components, one.key) for one in fleet.repositories]


def _address(text: str) -> str:
    return text if text.startswith(("http://", "https://", "file:")) else f"file:{Path(text).expanduser().absolute()}"


def _signed(text: str, key: Path | None) -> bool:
    """A folder that the user names by hand may be unsigned; what comes over a wire may not."""
    local = not text.startswith(("http://", "https://"))
    folder = Path(text.removeprefix("file:")).expanduser()
    return key is not None and key.is_file() and not (local and not (folder / "InRelease").is_file())


def run(
    wanted: Sequence[Target], repositories_: Sequence[repositories.Source], catalogue: load.Catalogue
) -> Iterator[Made]:
    """Make every lock, then write them. Raises `errors.InputError` with everything that could not be resolved."""
    report = issues.Report()
    made: list[tuple[Path, Lock]] = []
    indexes: dict[str, apt.Index] = {}
    for target in wanted:
        resolved = load.resolved(target.pinset, catalogue)
        architecture = target.os.rpartition("-")[2]
        if architecture not in indexes:
            indexes[architecture] = _index(repositories_, architecture)
        place = str(catalogue.pinsets / f"{target.pinset}.yaml")
        try:
            lock = locking.make(resolved.pinset, target.os, indexes[architecture], documents.place(Path(place)))
        except errors.InputError as error:
            if error.report is None:
                raise
            report.extend(error.report)
            continue
        made.append((load.lock_path(target.pinset, target.os, catalogue), lock))
    report.raise_if_errors("locks")
    for path, lock in made:
        yield Made(path, lock, locking.write(lock, path))


def _index(repositories_: Sequence[repositories.Source], architecture: str) -> apt.Index:
    index = apt.Index()
    for source in repositories_:
        try:
            index.add(repositories.packages(source, architecture), architecture)
        except ValueError as error:
            raise errors.InputError(f"repository {source}: {error}") from error
    return index
