"""Package databases: dpkg and rpm, restricted to the registry's packages.

    #dpkg
    nvidia-driver\t580.105.08-1\tii \tamd64

A package is installed when the second letter of its state is ``i`` (``ii``, held ``hi``); ``rc`` and ``un`` are absent.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bringup.parsers import texts
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Unreadable

__all__ = ["Package", "Packages", "held", "parse", "version_in_names", "version_locks", "version_of"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~:^_-]*")


@dataclass(frozen=True, slots=True)
class Package:
    """One entry of the database."""

    name: str
    version: str
    """With its epoch where it has one (rpm's ``0:`` is left out)."""
    state: str
    """Three letters as dpkg abbreviates them; always ``ii`` from rpm."""
    held: bool


@dataclass(frozen=True, slots=True)
class Packages:
    """The database of one node."""

    family: str
    """``debian`` or ``rhel``, as the registry names them."""
    by_name: Mapping[str, tuple[Package, ...]]


def parse(record: Record | Unreadable) -> Packages | Unreadable:
    """The list of `read_packages`."""
    if isinstance(record, Unreadable):
        return record
    head, _, body = record.text.partition("\n")
    family = {"#dpkg": "debian", "#rpm": "rhel"}.get(head.strip())
    if family is None or record.rc != 0:
        return Unreadable(record.complaint)
    found: dict[str, list[Package]] = {}
    for line in body.split("\n"):
        fields = line.split("\t")
        if len(fields) < 3 or not _NAME.fullmatch(fields[0]):
            continue
        version = fields[1].strip()
        if family == "rhel":
            version = version.removeprefix("0:").removeprefix("(none):")
        state = fields[2].strip()
        if version and not _VERSION.fullmatch(version):
            continue
        found.setdefault(fields[0], []).append(Package(fields[0], version, state, state.startswith("h")))
    return Packages(family, {name: tuple(entries) for name, entries in found.items()})


def version_of(packages: Packages | Unreadable, carriers: Sequence[str]) -> Raw | None:
    """Version of a component by the first of its packages; None where it has none.

    ``{version}`` in a package's name (``linux-image-{version}``) is the version itself; of several the newest counts.
    """
    if not carriers:
        return None
    if isinstance(packages, Unreadable):
        return packages
    half: str | None = None
    versions: list[str] = []
    for name, in_name in _carrying(packages, carriers[0]):
        for entry in packages.by_name[name]:
            if entry.state[1:2] == "i":
                versions.append(in_name or entry.version)
            elif entry.state[1:2] not in ("n", "c"):
                half = f"{name} is half installed ({entry.state})"
    if half is not None:
        return Unreadable(half)
    return max(versions, key=texts.version_key) if versions else ABSENT


def version_in_names(packages: Packages | Unreadable, template: str) -> tuple[str, ...]:
    """Versions that stand in the names of installed packages (``…-cuda{version}`` → ``12``, ``13``), sorted."""
    if isinstance(packages, Unreadable):
        return ()
    installed = [
        inside
        for name, inside in _carrying(packages, template)
        if inside and any(entry.state[1:2] == "i" for entry in packages.by_name[name])
    ]
    return tuple(sorted(installed, key=texts.version_key))


def held(packages: Packages | Unreadable, carriers: Sequence[str], locked: frozenset[str] = frozenset()) -> str | None:
    """Whether the installed packages of a component are held: ``yes``, ``no``, ``partial``; None without any.

    dpkg keeps the mark itself (state ``hi``); for rpm ``locked`` are the names in dnf's or zypper's lists.
    """
    if isinstance(packages, Unreadable):
        return None
    marks = {
        entry.held or name in locked
        for carrier in carriers
        for name, _ in _carrying(packages, carrier)
        for entry in packages.by_name[name]
        if entry.state[1:2] == "i"
    }
    return ("partial" if len(marks) == 2 else "yes" if True in marks else "no") if marks else None


def version_locks(files: Mapping[str, object]) -> frozenset[str]:
    """Names in dnf's versionlock lists (``[EPOCH:]NAME-VERSION-RELEASE.*``) and in zypper's; excludes left out."""
    found = set()
    for path, text in files.items():
        if not isinstance(text, str) or not ("versionlock" in path or path == "/etc/zypp/locks"):
            continue
        for line in text.splitlines():
            bare = line.strip()
            zypper = re.fullmatch(r"solvable_name:\s*(\S{1,100})", bare)
            dnf = re.fullmatch(
                r"(?:[0-9*]{1,9}:)?([A-Za-z0-9][A-Za-z0-9.+_-]{0,99}?)-(?:[0-9*]{1,9}:)?[^-\s]+-[^-\s]+", bare
            )
            match = zypper or (None if bare.startswith(("#", "!")) else dnf)
            if match is not None:
                found.add(match[1])
    return frozenset(found)


def _carrying(packages: Packages, template: str) -> list[tuple[str, str | None]]:
    """(name in the database, version inside the name) of every package that fits ``template``."""
    if "{" not in template:
        return [(template, None)] if template in packages.by_name else []
    pattern = _pattern(template)
    matches = ((name, pattern.fullmatch(name)) for name in packages.by_name)
    return [(name, match.groupdict().get("version")) for name, match in matches if match is not None]


@functools.cache
def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{([a-z]+)\\\}", _group, re.escape(template)))


def _group(match: re.Match[str]) -> str:
    # A version in a package's name begins with a digit, so that linux-image-amd64 (a meta package) is none.
    return f"(?P<{match[1]}>[0-9][A-Za-z0-9.+~_-]*)" if match[1] == "version" else f"(?P<{match[1]}>[0-9]+)"
