"""A pinset resolved to package files: `make` builds the lock, `write` puts it where it belongs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from lockstep.base import errors, issues
from lockstep.base.names import ComponentName
from pinsets import apt, canonical, components, normalisers, wishes
from pinsets.facts import Layer
from pinsets.model import Lock, LockedPackage, Pinset

__all__ = ["Index", "Package", "make", "write"]


class Package(Protocol):
    """What a lock needs of a package of either family."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def filename(self) -> str: ...
    @property
    def sha256(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def spellings(self) -> tuple[str, ...]: ...
    @property
    def carries_nothing(self) -> str | None: ...


P = TypeVar("P", bound=Package)


class Index(Protocol[P]):
    """Packages of the repositories of one family: `apt.Index` or `rpm_closure.Index`."""

    def versions(self, name: str) -> list[P]:
        """Packages of that name, newest first."""

    def resolve(self, given: Mapping[str, P]) -> apt.Resolution[P]:
        """What the exact packages of ``given`` need."""


def make(pinset: Pinset, os_name: str, index: Index[P], place: str) -> Lock:
    """The lock of ``pinset`` (bases merged) for an OS over the packages of ``index``.

    ``place`` names the pinset's file in messages. Raises `errors.InputError` that
    carries everything that cannot be resolved: a missing or ambiguous version, a
    meta package as carrier, a dependency that contradicts a pin.
    """
    report = issues.Report()
    for component in wishes.without_carrier(pinset, os_name):
        hint = "name it under `packages:` in pinsets/components.yaml, or pin other layers"
        report.error(place, None, f"`{component}`: the registry names no package for {os_name}", hint)
    given: dict[str, P] = {}
    for carrier in wishes.carriers(pinset, os_name):
        _carry(index, carrier, given, report, place)
    resolution = index.resolve(given)
    for problem in resolution.problems:
        report.error(place, None, problem, "pin versions that belong together")
    report.raise_if_errors(f"lock of {pinset.pinset} for {os_name}")
    packages = tuple(
        LockedPackage(
            name=package.name,
            version=package.version,
            filename=package.filename,
            sha256=package.sha256,
            size=package.size,
            pinned=name in given,
        )
        for name, package in sorted(resolution.packages.items())
    )
    pins = wishes.pins(pinset)
    made_from = wishes.digest(pinset, os_name)
    external = tuple(sorted(resolution.external))
    return Lock(
        pinset=pinset.pinset,
        os=os_name,
        sku=tuple(sorted(pinset.sku)),
        pins=pins,
        packages=packages,
        external=external,
        made_from=made_from,
        full=canonical.full(pinset.pinset, os_name, pinset.sku, pins, packages, external, made_from),
        job=canonical.job(pins),
    )


def _carry(index: Index[P], carrier: wishes.Carrier, given: dict[str, P], report: issues.Report, place: str) -> None:
    """Choose the exact package for each name of a carrier."""
    first: P | None = None
    for position, name in enumerate(carrier.packages):
        versions = index.versions(name)
        if not versions:
            report.error(
                place, None, f"`{carrier.component}` {carrier.version}: no repository of the fleet has package {name}"
            )
            continue
        fitting = _fitting(versions, carrier, position, first)
        if not fitting:
            there = ", ".join(package.version for package in versions[:6])
            wanted = carrier.exact if carrier.exact and position == 0 else carrier.version
            hint = f"there are {there}"
            report.error(place, None, f"`{carrier.component}`: package {name} has no version {wanted}", hint)
            continue
        if len(fitting) > 1:
            there = ", ".join(package.version for package in fitting)
            hint = "give the exact one as `package:`"
            report.error(place, None, f"`{carrier.component}` {carrier.version}: package {name} has {there}", hint)
            continue
        package = fitting[0]
        if (reason := package.carries_nothing) is not None:
            report.error(place, None, f"`{carrier.component}`: {name} cannot carry a pin: {reason}", _instead(carrier))
            continue
        given[name] = package
        first = first or package


def _instead(carrier: wishes.Carrier) -> str:
    """What to pin where the carrier that the registry names is a meta package in these repositories."""
    others = [one for one in components.load()[ComponentName(carrier.component)].layers if one is not Layer.PACKAGE]
    if carrier.component == "cuda":
        return (
            "pin `cuda` with `layers: [ondisk]`, and its packages by `cuda.runtime` with `layers: [library, package]`"
        )
    if others:
        return f"leave its package out: `layers: [{', '.join(others)}]`, and pin what brings the files"
    return "pin the package that brings the files; name it in pinsets/components.yaml"


def _fitting(versions: list[P], carrier: wishes.Carrier, position: int, first: P | None) -> list[P]:
    if position == 0 and carrier.exact is not None:
        return [package for package in versions if package.version == carrier.exact]
    if carrier.named:
        return versions
    same = [
        package
        for package in versions
        if carrier.version in {normalisers.normalise(carrier.component, text) for text in package.spellings}
    ]
    # A family is built together: of two revisions, the one of the package that names the version.
    equal = [package for package in same if first is not None and package.version == first.version]
    return equal or same


def write(lock: Lock, path: Path) -> bool:
    """Write the lock's file atomically; False when it already held exactly this. Raises `errors.EngineError`."""
    text = canonical.to_json(lock)
    try:
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise errors.EngineError(f"cannot write {path}: {error.strerror}", hint="see space and rights there") from error
    return True
