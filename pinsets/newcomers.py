"""Which packages of an index are new to what was taken in before: the same for APT and RPM. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

__all__ = ["Listed", "of"]


class Listed(Protocol):
    """What an index says of a package file."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def filename(self) -> str: ...
    @property
    def sha256(self) -> str: ...


Package = TypeVar("Package", bound=Listed)


def of(
    packages: Iterable[Package], known: Mapping[str, Sequence[Package]], architectures: Collection[str]
) -> Iterator[Package]:
    """Packages of ``architectures`` that are not in ``known`` (name → packages), which the caller fills as they come.

    Raises ValueError when two files claim one name and version: nobody knows then which of them a lock means.
    """
    for package in packages:
        if package.architecture not in architectures:
            continue
        same = next((one for one in known.get(package.name, ()) if one.version == package.version), None)
        if same is None:
            yield package
        elif same.sha256 != package.sha256:
            raise ValueError(
                f"{package.name} {package.version} stands there with two checksums: {same.filename} and "
                f"{package.filename}"
            )
