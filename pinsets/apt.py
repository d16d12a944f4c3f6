"""An APT repository's index as text → packages, and which of them an exact set needs. Pure; `repositories` fetches."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from lockstep.base import collection
from pinsets import debversions, newcomers

__all__ = ["Dependency", "Index", "Package", "Resolution", "paragraphs", "parse_packages", "resolve"]

_RELATION = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9+.-]*)(:(?P<arch>[a-z0-9-]+))?\s*"
    r"(\(\s*(?P<relation><<|<=|=|>=|>>|<|>)\s*(?P<version>[^\s)]+)\s*\))?\s*(\[[^\]]*\])?\s*(<[^>]*>\s*)*$"
)
_META: Final = re.compile(r"\b(meta[- ]?package|metapackage|transitional|dummy package)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Dependency:
    """One name in one alternative of ``Depends``."""

    name: str
    relation: str | None = None
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.relation} {self.version})" if self.relation else self.name

    def accepts(self, version: str) -> bool:
        """Whether a package of that name in ``version`` satisfies it."""
        return self.relation is None or debversions.satisfies(version, self.relation, str(self.version))


@dataclass(frozen=True, slots=True)
class Package:
    """One paragraph of ``Packages``."""

    name: str
    version: str
    architecture: str
    filename: str
    """Path below the repository's root."""
    sha256: str
    size: int
    """Bytes of the file."""
    depends: tuple[tuple[Dependency, ...], ...] = ()
    """Pre-Depends and Depends; each entry is a list of alternatives."""
    provides: tuple[Dependency, ...] = ()
    conflicts: tuple[Dependency, ...] = ()
    """Conflicts and Breaks: what cannot be installed beside it."""
    section: str = ""
    description: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Version texts by which a pin may name it."""
        return (self.version,)

    @property
    def carries_nothing(self) -> str | None:
        """Why the package cannot carry a pin (it only points at others, whose versions then move); None if it can."""
        if self.section.rpartition("/")[2] == "metapackages":
            return "its section is metapackages"
        match = _META.search(self.description)
        return f"its description says {match[0].lower()}" if match else None


@dataclass(slots=True)
class Index:
    """Packages of one or more repositories, for one architecture."""

    by_name: dict[str, list[Package]] = field(default_factory=lambda: defaultdict(list))
    providers: dict[str, list[tuple[Package, Dependency]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, packages: Iterable[Package], architecture: str) -> None:
        """Take in packages of ``architecture`` and ``all``. Raises ValueError when two claim one name and version."""
        for package in newcomers.of(packages, self.by_name, (architecture, "all")):
            self.by_name[package.name].append(package)
            for provided in package.provides:
                self.providers[provided.name].append((package, provided))

    def versions(self, name: str) -> list[Package]:
        """Packages of that name, newest first."""
        found = self.by_name.get(name, [])
        return sorted(found, key=lambda package: debversions.sort_key(package.version), reverse=True)

    def resolve(self, given: Mapping[str, Package]) -> Resolution[Package]:
        """The closure of ``given``: see `resolve`."""
        return resolve(self, given)


def paragraphs(text: str) -> Iterator[dict[str, str]]:
    """Paragraphs of a Debian control file, field names in lower case, continuation lines joined by newlines."""
    current: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        if not line.strip():
            if current:
                yield current
            current, last = {}, ""
        elif line[0] in " \t":
            if last:
                current[last] += "\n" + line.strip()
        elif not line.startswith("#"):
            name, _, value = line.partition(":")
            last = name.strip().lower()
            current[last] = value.strip()
    if current:
        yield current


@collection.paused()
def parse_packages(text: str, place: str) -> list[Package]:
    """``Packages`` → packages. Raises ValueError naming ``place`` when a needed field is missing or wrong."""
    found = []
    for entry in paragraphs(text):
        try:
            sha256, size = entry["sha256"], int(entry["size"])
            if not re.fullmatch(r"[0-9a-f]{64}", sha256):
                raise ValueError(f"{sha256!r} is no sha256")
            found.append(
                Package(
                    name=entry["package"],
                    version=entry["version"],
                    architecture=entry["architecture"],
                    filename=entry["filename"].removeprefix("./"),
                    sha256=sha256,
                    size=size,
                    depends=(*_relations(entry.get("pre-depends", "")), *_relations(entry.get("depends", ""))),
                    provides=tuple(_flat(entry.get("provides", ""))),
                    conflicts=(*_flat(entry.get("conflicts", "")), *_flat(entry.get("breaks", ""))),
                    section=entry.get("section", ""),
                    description=entry.get("description", ""),
                )
            )
        except KeyError as error:
            name = entry.get("package", "a package")
            raise ValueError(f"{place}: {name} has no field {error.args[0]}") from error
        except ValueError as error:
            raise ValueError(f"{place}: {entry.get('package', 'a package')}: {error}") from error
    return found


def _flat(text: str) -> Iterator[Dependency]:
    return (one for group in _relations(text) for one in group)


def _relations(text: str) -> tuple[tuple[Dependency, ...], ...]:
    groups = []
    for part in text.replace("\n", " ").split(","):
        if not part.strip():
            continue
        alternatives = []
        for one in part.split("|"):
            match = _RELATION.match(one.strip())
            if match is None:
                raise ValueError(f"cannot read the dependency {one.strip()!r}")
            alternatives.append(Dependency(match["name"], match["relation"], match["version"]))
        groups.append(tuple(alternatives))
    return tuple(groups)


P = TypeVar("P")
"""A package of either family: ours, or `rpm.Package`."""


@dataclass(slots=True)
class Resolution(Generic[P]):
    """What an exact set needs."""

    packages: dict[str, P] = field(default_factory=dict)
    """Name → the one version chosen; the given ones included."""
    external: set[str] = field(default_factory=set)
    """Dependencies that no package of the index satisfies by name: the OS image brings them."""
    problems: list[str] = field(default_factory=list)
    """Dependencies that the index cannot satisfy together with what was chosen."""


def resolve(index: Index, given: Mapping[str, Package]) -> Resolution[Package]:
    """The closure of ``given`` (name → exact package) over ``index`` alone; the same answer for the same index.

    A name that the index does not hold belongs to the OS image and is listed as
    external. Where several versions would do, an equal version is taken first
    (families are released together), then the newest.
    """
    found: Resolution[Package] = Resolution(packages=dict(given))
    queue = sorted(given)
    while queue:
        package = found.packages[queue.pop(0)]
        for alternatives in package.depends:
            chosen = _satisfy(index, found, package, alternatives)
            if chosen is not None:
                found.packages[chosen.name] = chosen
                queue.append(chosen.name)
    found.problems += _clashes(found.packages)
    return found


def _clashes(packages: Mapping[str, Package]) -> Iterator[str]:
    """Pairs that cannot be installed beside each other."""
    for name in sorted(packages):
        package = packages[name]
        for conflict in package.conflicts:
            for other in packages.values():
                if other is not package and _is_meant(conflict, other):
                    yield (
                        f"{package.name} {package.version} cannot be installed beside {other.name} {other.version} "
                        f"(it conflicts with {conflict})"
                    )


def _is_meant(conflict: Dependency, other: Package) -> bool:
    if conflict.name == other.name:
        return conflict.accepts(other.version)
    return any(_provides(provided, conflict) for provided in other.provides)


def _satisfy(
    index: Index, found: Resolution[Package], package: Package, alternatives: Sequence[Dependency]
) -> Package | None:
    """A package to add for one dependency; None when it is satisfied already, external, or a problem was noted."""
    for wanted in alternatives:
        if _satisfied(found.packages, wanted):
            return None
    known = False
    for wanted in alternatives:
        candidates = [one for one in index.versions(wanted.name) if wanted.accepts(one.version)]
        known = known or bool(index.by_name.get(wanted.name)) or wanted.name in index.providers
        taken = found.packages.get(wanted.name)
        if candidates and taken is None:
            equal = [one for one in candidates if one.version == package.version]
            return (equal or candidates)[0]
        providers = [one for one, provided in index.providers.get(wanted.name, ()) if _provides(provided, wanted)]
        free = sorted((one for one in providers if one.name not in found.packages), key=lambda one: one.name)
        if free and taken is None:
            return max(
                (one for one in free if one.name == free[0].name),
                key=lambda one: debversions.sort_key(one.version),
            )
    text = " | ".join(map(str, alternatives))
    if not known:
        found.external.add(text)
        return None
    chosen = next((found.packages[one.name] for one in alternatives if one.name in found.packages), None)
    why = f"{chosen.name} {chosen.version} is pinned or needed by another" if chosen else "no such version is there"
    found.problems.append(f"{package.name} {package.version} needs {text}: {why}")
    return None


def _satisfied(packages: Mapping[str, Package], wanted: Dependency) -> bool:
    taken = packages.get(wanted.name)
    if taken is not None and wanted.accepts(taken.version):
        return True
    return any(_provides(provided, wanted) for package in packages.values() for provided in package.provides)


def _provides(provided: Dependency, wanted: Dependency) -> bool:
    """Policy: an unversioned Provides satisfies only an unversioned dependency."""
    if provided.name != wanted.name:
        return False
    if wanted.relation is None:
        return True
    return provided.version is not None and wanted.accepts(provided.version)
