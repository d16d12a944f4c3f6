"""The index of an APT repository, its signature and checksums proved.

What is trusted is the chain key → InRelease → checksum of ``Packages`` → checksums
of packages; each link is proved here, none is skipped when the fleet names a key.
"""

from __future__ import annotations

import hashlib
import re

from lockstep.base import errors
from pinsets import apt, fetching
from pinsets.fetching import Source

__all__ = ["Source", "packages"]


def packages(source: Source, architecture: str) -> list[apt.Package]:
    """Every package of the repository for an architecture (and ``all``).

    Raises `errors.InputError` when the repository cannot be read, its signature or
    a checksum is wrong, or its index has no sha256.
    """
    release = _release(source)
    found: list[apt.Package] = []
    for name in _index_names(source, architecture):
        text = _index(source, release, name)
        try:
            found += apt.parse_packages(text, f"{source} {name}")
        except ValueError as error:
            raise errors.InputError(str(error)) from error
    return found


def _index_names(source: Source, architecture: str) -> list[str]:
    if source.suite.endswith("/"):
        return ["Packages"]
    if not source.components:
        raise errors.InputError(
            f"repository {source} names a suite and no components",
            hint="add `components: [main]`, or end a flat repository's suite in a slash",
        )
    return [f"{component}/binary-{architecture}/Packages" for component in source.components]


def _release(source: Source) -> dict[str, tuple[str, int]]:
    """File → (sha256, size) of the release file, its signature proved."""
    signed = fetching.fetch(source, f"{source.folder}InRelease", missing_ok=True)
    if signed is not None:
        text = fetching.verified(source, signed) if source.key is not None else fetching.unwrapped(signed)
        return _checksums(source, text)
    plain = fetching.fetch(source, f"{source.folder}Release", missing_ok=True)
    if source.key is not None:
        signature = (
            fetching.fetch(source, f"{source.folder}Release.gpg", missing_ok=True) if plain is not None else None
        )
        if plain is None or signature is None:
            raise errors.InputError(
                f"repository {source} has neither InRelease nor Release with Release.gpg",
                hint="sign it, or leave out `key:` for an unsigned repository",
            )
        return _checksums(source, fetching.verified(source, signature, plain))
    if plain is None:
        raise errors.InputError(f"repository {source} has no InRelease and no Release file", hint="check the address")
    return _checksums(source, plain)


def _checksums(source: Source, text: bytes) -> dict[str, tuple[str, int]]:
    entry = next(apt.paragraphs(text.decode("utf-8", "replace")), {})
    listed = {}
    for line in entry.get("sha256", "").split("\n"):
        parts = line.split()
        if len(parts) == 3 and re.fullmatch(r"[0-9a-f]{64}", parts[0]) and parts[1].isdecimal():
            listed[parts[2]] = (parts[0], int(parts[1]))
    if not listed:
        raise errors.InputError(f"the release file of repository {source} lists no sha256")
    return listed


def _index(source: Source, release: dict[str, tuple[str, int]], name: str) -> str:
    for suffix in fetching.PACKED:
        if (wanted := release.get(name + suffix)) is None:
            continue
        data = fetching.fetch(source, f"{source.folder}{name}{suffix}", missing_ok=True)
        if data is None:
            # Many repositories list the plain index and keep only the packed one.
            continue
        if hashlib.sha256(data).hexdigest() != wanted[0]:
            raise errors.InputError(
                f"{name}{suffix} of repository {source} does not have the checksum its release file gives",
                hint="the mirror is between two updates, or damaged: try again later",
            )
        return fetching.unpacked(name + suffix, data).decode("utf-8", "replace")
    raise errors.InputError(f"the release file of repository {source} does not list {name}", hint="check the suite")
