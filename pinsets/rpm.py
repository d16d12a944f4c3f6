"""An RPM repository's ``primary.xml`` as text → packages with what they provide and require. Pure.

`rpm_repositories` fetches and proves the files, `rpm_closure` says what an exact set needs.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lockstep.base import collection
from pinsets import rpmversions

__all__ = ["Entry", "Package", "Repomd", "RepomdFile", "parse_primary", "parse_repomd"]

_COMMON: Final = "{http://linux.duke.edu/metadata/common}"
_RPM: Final = "{http://linux.duke.edu/metadata/rpm}"
_REPO: Final = "{http://linux.duke.edu/metadata/repo}"
_META: Final = re.compile(
    r"\b(meta[- ]?package|virtual package|transitional|dummy package|compatibility package)\b", re.IGNORECASE
)
_FLAGS: Final = {"EQ": "=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of provides, requires or conflicts."""

    name: str
    """A package, a capability, a path, or a whole boolean expression in parentheses."""
    relation: str | None = None
    version: str | None = None
    """``epoch:version-release`` as given."""

    def __str__(self) -> str:
        return f"{self.name} {self.relation} {self.version}" if self.relation else self.name

    @property
    def rich(self) -> bool:
        """Whether it is a boolean expression: ``(a if b)``."""
        return self.name.startswith("(")

    def overlaps(self, provided: Entry) -> bool:
        """Whether what ``provided`` offers under the same name satisfies this; existence alone always does."""
        if provided.name != self.name:
            return False
        if self.relation is None or provided.relation is None:
            return True
        order = rpmversions.compare(str(provided.version), str(self.version))
        if order < 0:
            return ">" in provided.relation or "<" in self.relation
        if order > 0:
            return "<" in provided.relation or ">" in self.relation
        return any(sign in provided.relation and sign in self.relation for sign in "=<>")


@dataclass(frozen=True, slots=True)
class Package:
    """One package of ``primary.xml``."""

    name: str
    version: str
    """``epoch:version-release``; no epoch where it is 0."""
    architecture: str
    filename: str
    """Path below the repository's root."""
    sha256: str
    size: int
    """Bytes of the file."""
    installed: int
    """Bytes it brings; 0 for a package without files."""
    requires: tuple[Entry, ...] = ()
    provides: tuple[Entry, ...] = ()
    conflicts: tuple[Entry, ...] = ()
    obsoletes: tuple[Entry, ...] = ()
    files: tuple[str, ...] = ()
    """Those that the primary index lists: programs and /etc."""
    text: str = ""
    """Summary and description."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Version texts by which a pin may name it: a kernel's release has the architecture behind it."""
        return (self.version, f"{self.version}.{self.architecture}")

    @property
    def carries_nothing(self) -> str | None:
        """Why the package cannot carry a pin (it only points at others, whose versions then move); None if it can."""
        match = _META.search(self.text)
        if match:
            return f"its description says {match[0].lower()}"
        return "it holds no files" if self.installed == 0 else None


@dataclass(frozen=True, slots=True)
class RepomdFile:
    """One file that ``repomd.xml`` lists."""

    path: str
    sha256: str | None
    """None: another kind of checksum stands there."""
    size: int | None


@dataclass(frozen=True, slots=True)
class Repomd:
    """``repomd.xml``: kind (``primary``, ``modules`` …) → file."""

    files: dict[str, RepomdFile]


def _parsed(data: bytes, place: str) -> ElementTree.Element:
    # No document type is legal in repository metadata, and without one there are no entities to blow up.
    if b"<!DOCTYPE" in data[:4096] or b"<!ENTITY" in data:
        raise ValueError(f"{place}: a document type stands in it, which repository metadata never has")
    try:
        return ElementTree.fromstring(data)  # noqa: S314 - without a document type there are no entities
    except ElementTree.ParseError as error:
        raise ValueError(f"{place}: is no XML: {error}") from error


def parse_repomd(data: bytes, place: str) -> Repomd:
    """``repomd.xml`` → the files it lists. Raises ValueError naming ``place``."""
    files = {}
    for entry in _parsed(data, place).iter(f"{_REPO}data"):
        location, checksum = entry.find(f"{_REPO}location"), entry.find(f"{_REPO}checksum")
        size = entry.findtext(f"{_REPO}size", "")
        if location is None or not location.get("href"):
            raise ValueError(f"{place}: an entry names no file")
        path = _inside(str(location.get("href")), place)
        right = checksum is not None and checksum.get("type") == "sha256"
        digest = (checksum.text or "").strip() if checksum is not None and right else None
        if digest is not None and not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ValueError(f"{place}: {digest!r} is no sha256")
        files[entry.get("type", "")] = RepomdFile(path, digest, int(size) if size.isdecimal() else None)
    if not files:
        raise ValueError(f"{place}: lists no files")
    return Repomd(files)


def _inside(path: str, place: str) -> str:
    """A path below the repository's root. Raises ValueError for one that leads out of it."""
    if path.startswith("/") or ".." in path.split("/") or "://" in path:
        raise ValueError(f"{place}: the path {path!r} leads out of the repository")
    return path.removeprefix("./")


@collection.paused()
def parse_primary(data: bytes, place: str) -> list[Package]:
    """``primary.xml`` → packages. Raises ValueError naming ``place`` when a needed field is missing or wrong."""
    root = _parsed(data, place)
    if root.tag != f"{_COMMON}metadata":
        raise ValueError(f"{place}: is no primary index")
    return [_package(element, place) for element in root.iter(f"{_COMMON}package") if element.get("type") == "rpm"]


def _package(element: ElementTree.Element, place: str) -> Package:
    name = element.findtext(f"{_COMMON}name", "").strip()
    architecture = element.findtext(f"{_COMMON}arch", "").strip()
    version, size = element.find(f"{_COMMON}version"), element.find(f"{_COMMON}size")
    checksum, location = element.find(f"{_COMMON}checksum"), element.find(f"{_COMMON}location")
    if not name or not architecture or version is None or size is None or checksum is None or location is None:
        raise ValueError(f"{place}: {name or 'a package'} lacks one of name, arch, version, size, checksum, location")
    digest = (checksum.text or "").strip()
    if checksum.get("type") != "sha256" or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError(f"{place}: {name} has no sha256 but {checksum.get('type')!r}")
    evr = _evr(version)
    if evr is None:
        raise ValueError(f"{place}: {name} has no version")
    form = element.find(f"{_COMMON}format")
    texts = (element.findtext(f"{_COMMON}{tag}", "") for tag in ("summary", "description"))
    try:
        bytes_, installed = int(size.get("package", "")), int(size.get("installed", ""))
    except ValueError as error:
        raise ValueError(f"{place}: {name} has no size") from error
    return Package(
        name=name,
        version=evr,
        architecture=architecture,
        filename=_inside(location.get("href", ""), f"{place}: {name}"),
        sha256=digest,
        size=bytes_,
        installed=installed,
        requires=tuple(_entries(form, "requires")),
        provides=(Entry(name, "=", evr), *_entries(form, "provides")),
        conflicts=tuple(_entries(form, "conflicts")),
        obsoletes=tuple(_entries(form, "obsoletes")),
        files=tuple(file.text or "" for file in form.iter(f"{_COMMON}file")) if form is not None else (),
        text="\n".join(texts),
    )


def _entries(form: ElementTree.Element | None, kind: str) -> Iterator[Entry]:
    group = form.find(f"{_RPM}{kind}") if form is not None else None
    for element in group if group is not None else ():
        name, flags = element.get("name", ""), element.get("flags")
        # What the package manager itself must be able to do is no package.
        if name and not name.startswith("rpmlib("):
            yield Entry(name, _FLAGS.get(flags or ""), _evr(element) if flags in _FLAGS else None)


def _evr(element: ElementTree.Element) -> str | None:
    version = element.get("ver")
    if not version:
        return None
    release = element.get("rel")
    epoch = element.get("epoch", "0")
    return str(rpmversions.Evr(int(epoch) if re.fullmatch(r"[0-9]{1,9}", epoch) else 0, version, release))
