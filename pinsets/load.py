"""Pinsets and locks from files: ``base:`` with the origin of each value; stale and damaged locks refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pydantic

from lockstep.base import documents, errors, issues, settings
from lockstep.base.names import PoolName
from pinsets import canonical, lint, lint_rules, wishes
from pinsets.model import Lock, Pin, Pinset
from pinsets.resolved import Origin, Resolved

if TYPE_CHECKING:
    from inventory.model import Fleet

__all__ = [
    "Catalogue",
    "Origin",
    "Resolved",
    "Wanted",
    "default_catalogue",
    "fleet_locks",
    "lock",
    "lock_path",
    "lock_text",
    "locks_of",
    "pinset",
    "read_pinset",
    "resolved",
]

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Where pinsets and locks lie."""

    pinsets: Path
    locks: Path

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all pinsets."""
        return tuple(sorted(path.stem for path in self.pinsets.glob("*.yaml")))


def default_catalogue(root: Path | None = None) -> Catalogue:
    """That of a checkout at ``root``; None: of the checkout that we stand in. Without one: what ships with us."""
    root = root or settings.load().checkout
    folder = root / "pinsets" if root is not None and (root / "pinsets" / "catalog").is_dir() else _HERE
    return Catalogue(folder / "catalog", folder / "locks")


def pinset(name: str, catalogue: Catalogue | None = None) -> Pinset:
    """The pinset of that name with its bases merged. Raises `errors.InputError` with every issue."""
    return resolved(name, catalogue).pinset


def resolved(name: str, catalogue: Catalogue | None = None) -> Resolved:
    """As `pinset`, with the origin of each pin."""
    report = issues.Report()
    found = read_pinset(name, catalogue or default_catalogue(), report)
    report.raise_if_errors(f"pinset {name}")
    assert found is not None  # noqa: S101 - without errors there is a pinset
    return found


def read_pinset(name: str, catalogue: Catalogue, report: issues.Report) -> Resolved | None:
    """The pinset, linted; None when ``report`` got errors."""
    before = len(report.errors)
    files: list[tuple[Pinset, documents.Document]] = []
    chain: list[str] = []
    wanted: str | None = name
    while wanted is not None:
        if wanted in chain:
            _, document = files[-1]
            loop = " → ".join([*chain[chain.index(wanted) :], wanted])
            report.error(document.path, document.line("base"), f"`base` goes round in a circle: {loop}")
            return None
        file = _read_one(wanted, catalogue, report, files[-1][1] if files else None)
        if file is None:
            return None
        files.append(file)
        chain.append(wanted)
        wanted = file[0].base
    for one, document in files:
        lint.run(one, document, report)
    if len(report.errors) > before:
        return None
    pins: dict[str, Pin] = {}
    origins: dict[str, Origin] = {}
    for one, document in files:
        for component, pin in one.pins.items():
            if component not in pins:
                pins[component] = pin
                origins[component] = Origin(document.path, document.line("pins", component))
    rules = {rule: reason for one, _ in reversed(files) for rule, reason in one.rules.items()}
    found = Resolved(files[0][0].model_copy(update={"pins": pins, "rules": rules}), origins, tuple(chain))
    lint_rules.report_on(found, report)
    return found if len(report.errors) == before else None


def _read_one(
    name: str, catalogue: Catalogue, report: issues.Report, asked_by: documents.Document | None
) -> tuple[Pinset, documents.Document] | None:
    path = catalogue.pinsets / f"{name}.yaml"
    if "/" in name or not path.is_file():
        hint = documents.did_you_mean(name, catalogue.names)
        place = asked_by.path if asked_by else "pinset"
        line = asked_by.line("base") if asked_by else None
        report.error(place, line, f"there is no pinset `{name}`", hint)
        return None
    document = documents.load(path, report)
    found = document.partial(Pinset, report) if document else None
    return (found, document) if document is not None and found is not None else None


def lock_path(name: str, os: str, catalogue: Catalogue | None = None) -> Path:
    """Where the lock of a pinset for an OS lies, whether or not it exists."""
    return (catalogue or default_catalogue()).locks / f"{name}@{os}.json"


def lock(name: str, os: str, catalogue: Catalogue | None = None) -> Lock:
    """The lock of a pinset for an OS.

    Raises `errors.InputError` (exit 2) with the command to run when it is missing,
    damaged, or made from another state of the pinset.
    """
    where = catalogue or default_catalogue()
    found = resolved(name, where)
    path = lock_path(name, os, where)
    if not path.is_file():
        raise errors.InputError(
            f"there is no lock of pinset {name} for {os}", place=documents.place(path), hint=_make_it("FLEET", name)
        )
    read = lock_text(path.read_text(encoding="utf-8"), documents.place(path))
    if (read.pinset, read.os) != (name, os):
        raise errors.InputError(
            f"the lock says {read.pinset}@{read.os}", place=documents.place(path), hint=_make_it("FLEET", name)
        )
    if read.made_from != wishes.digest(found.pinset, os):
        raise errors.InputError(
            f"the lock is stale: pinset {name} has changed since it was made",
            place=documents.place(path),
            hint=_make_it("FLEET", name),
        )
    return read


def lock_text(text: str, place: str) -> Lock:
    """A lock from its JSON text, digests proved. Raises `errors.InputError` when it was edited or cut."""
    try:
        found = Lock.model_validate(json.loads(text))
    except (ValueError, pydantic.ValidationError) as error:
        raise errors.InputError(
            f"this is no lock: {str(error).splitlines()[0]}", place=place, hint=_make_it("FLEET", "PINSET")
        ) from error
    whole = canonical.full(
        found.pinset, found.os, found.sku, found.pins, found.packages, found.external, found.made_from
    )
    if whole != found.full or canonical.job(found.pins) != found.job:
        raise errors.InputError(
            "the lock's contents do not give its digest: it was edited by hand or damaged",
            place=place,
            hint="locks are written by `lockstep pin lock` only",
        )
    return found


def fleet_locks(fleet: Fleet, catalogue: Catalogue | None = None) -> dict[PoolName, Lock]:
    """The lock of every pool. Raises `errors.InputError` that carries everything wrong with pinsets and locks."""
    report = issues.Report()
    wanted = [
        Wanted(
            pool.name, str(pool.pinset), pool.os, pool.sku.sku, documents.place(fleet.path), pool.line, str(fleet.name)
        )
        for pool in fleet.pools
    ]
    found = locks_of(wanted, catalogue or default_catalogue(), report)
    report.raise_if_errors(f"pinsets and locks of fleet {fleet.name}")
    return found


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one pool asks for, and where it is written."""

    pool: PoolName
    pinset: str
    os: str
    sku: str
    path: str
    line: int | None
    fleet: str


def locks_of(wanted: Sequence[Wanted], where: Catalogue, report: issues.Report) -> dict[PoolName, Lock]:
    """The locks that pools ask for; what is wrong goes to ``report``, and its pools are left out."""
    found: dict[PoolName, Lock] = {}
    linted: dict[str, Resolved | None] = {}
    for one in wanted:
        if one.pinset not in where.names:
            hint = documents.did_you_mean(one.pinset, where.names)
            report.error(one.path, one.line, f"pool `{one.pool}`: there is no pinset `{one.pinset}`", hint)
            continue
        if one.pinset not in linted:
            linted[one.pinset] = read_pinset(one.pinset, where, report)
        known = linted[one.pinset]
        if known is None:
            continue
        if one.sku not in known.pinset.sku:
            made_for = ", ".join(known.pinset.sku)
            report.error(
                one.path,
                one.line,
                f"pool `{one.pool}`: pinset `{one.pinset}` is made for SKU {made_for}, the pool has `{one.sku}`",
                "take a pinset made for this SKU, or add the SKU to a new catalogue entry",
            )
            continue
        try:
            found[one.pool] = lock(one.pinset, one.os, where)
        except errors.InputError as error:
            hint = _make_it(one.fleet, one.pinset)
            report.error(one.path, one.line, f"pool `{one.pool}`: {error.message} ({error.place})", hint)
    return found


def _make_it(fleet: str, name: str) -> str:
    return f"lockstep pin lock {fleet} --pinset {name}"
