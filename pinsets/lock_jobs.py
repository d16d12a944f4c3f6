"""Which pinsets to lock for a fleet, from which repositories, and doing it: all of them or none is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.base import documents, errors, issues
from pinsets import (
    apt,
    components,
    fetching,
    load,
    locking,
    repositories,
    rpm_closure,
    rpm_repositories,
    wishes,
)
from pinsets.model import Lock, Pinset

if TYPE_CHECKING:
    from inventory.model import Fleet

__all__ = ["Made", "Sources", "Target", "run", "sources", "targets"]


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
    notes: tuple[str, ...] = ()
    """What was not looked at and may matter."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Repositories of both families."""

    apt: tuple[fetching.Source, ...] = ()
    rpm: tuple[fetching.Source, ...] = ()


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


def sources(fleet: Fleet, given: Sequence[str] = ()) -> Sources:
    """The fleet's repositories, or ``given`` folders and URLs, with the key of the fleet's first repository.

    A given one counts for both families; which files are looked for is decided by the OS.
    """
    if given:
        key = next((entry.key for entry in fleet.repositories if entry.key is not None), None)
        found = tuple(fetching.Source(_address(text), key=key if _signed(text, key) else None) for text in given)
        return Sources(found, found)
    return Sources(
        tuple(
            fetching.Source(one.apt, one.suite, one.components, one.key)
            for one in fleet.repositories
            if one.apt is not None
        ),
        tuple(fetching.Source(one.rpm, key=one.key) for one in fleet.repositories if one.rpm is not None),
    )


def _address(text: str) -> str:
    return text if text.startswith(("http://", "https://", "file:")) else f"file:{Path(text).expanduser().absolute()}"


def _signed(text: str, key: Path | None) -> bool:
    """A folder that the user names by hand may be unsigned; what comes over a wire may not."""
    local = not text.startswith(("http://", "https://"))
    folder = Path(text.removeprefix("file:")).expanduser()
    signatures = (folder / "InRelease", folder / "repodata" / "repomd.xml.asc")
    return key is not None and key.is_file() and (not local or any(file.is_file() for file in signatures))


def run(wanted: Sequence[Target], found: Sources, catalogue: load.Catalogue) -> Iterator[Made]:
    """Make every lock, then write them. Raises `errors.InputError` with everything that could not be resolved."""
    report = issues.Report()
    made: list[tuple[Path, Lock, tuple[str, ...]]] = []
    opened: dict[tuple[str, str], _Opened] = {}
    for target in wanted:
        resolved = load.resolved(target.pinset, catalogue)
        family, architecture = components.family(target.os), target.os.rpartition("-")[2]
        rpms = family in components.RPM_FAMILIES
        key = ("rpm" if rpms else "apt", architecture)
        if not wishes.carriers(resolved.pinset, target.os):
            # Firmware and settings alone, as of a switch tray: no package, so no repository either.
            key = ("none", architecture)
            opened[key] = _none()
        elif key not in opened:
            opened[key] = _rpm(found.rpm, target.os) if rpms else _apt(found.apt, target.os)
        place = documents.place(catalogue.pinsets / f"{target.pinset}.yaml")
        try:
            lock = opened[key].make(resolved.pinset, target.os, place)
        except errors.InputError as error:
            if error.report is None:
                raise
            report.extend(error.report)
            continue
        made.append((load.lock_path(target.pinset, target.os, catalogue), lock, opened[key].notes))
    report.raise_if_errors("locks")
    for path, lock, notes in made:
        yield Made(path, lock, locking.write(lock, path), notes)


@dataclass(frozen=True, slots=True)
class _Opened:
    """The repositories of one family, read."""

    make: Callable[[Pinset, str, str], Lock]
    notes: tuple[str, ...] = ()


def _none() -> _Opened:
    return _Opened(lambda pinset, os, place: locking.make(pinset, os, apt.Index(), place))


def _apt(found: Sequence[fetching.Source], os_name: str) -> _Opened:
    architecture = os_name.rpartition("-")[2]
    index = apt.Index()
    for source in _some(found, os_name, "apt"):
        try:
            index.add(repositories.packages(source, architecture), architecture)
        except ValueError as error:
            raise errors.InputError(f"repository {source}: {error}") from error
    return _Opened(lambda pinset, os, place: locking.make(pinset, os, index, place))


def _rpm(found: Sequence[fetching.Source], os_name: str) -> _Opened:
    index = rpm_closure.Index()
    notes = []
    for source in _some(found, os_name, "rpm"):
        read = rpm_repositories.read(source)
        try:
            index.add(read.packages, rpm_closure.architecture(os_name))
        except ValueError as error:
            raise errors.InputError(f"repository {source.address}: {error}") from error
        if read.modular:
            notes.append(
                f"repository {source.address} has module streams, which are not looked at: dnf may hide packages that "
                "the lock names; set it up with `module_hotfixes=1`"
            )
    return _Opened(lambda pinset, os, place: locking.make(pinset, os, index, place), tuple(notes))


def _some(found: Sequence[fetching.Source], os_name: str, kind: str) -> Sequence[fetching.Source]:
    if not found:
        raise errors.InputError(
            f"the fleet names no {kind} repository, which {os_name} needs",
            hint=f"add `{kind}: ADDRESS` to `repositories:`, or give --repository",
        )
    return found
