"""The index of an RPM repository, its signature and checksums proved.

What is trusted is the chain key → ``repomd.xml.asc`` → ``repomd.xml`` → checksum of
``primary.xml`` → checksums of packages; no link is skipped when the fleet names a key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from lockstep.base import errors
from pinsets import fetching, rpm

__all__ = ["Read", "read"]

_REPOMD: Final = "repodata/repomd.xml"


@dataclass(frozen=True, slots=True)
class Read:
    """What one repository holds."""

    packages: tuple[rpm.Package, ...]
    """Of every architecture."""
    modular: bool
    """It has module streams. dnf hides packages of streams that are not enabled, which is not modelled here: the
    package manager may refuse what a lock names, unless the repository is set up with `module_hotfixes=1`."""


def read(source: fetching.Source) -> Read:
    """Every package of the repository.

    Raises `errors.InputError` when it cannot be read, its signature or a checksum is
    wrong, or it has no sha256.
    """
    data = fetching.needed(source, _REPOMD)
    if source.key is not None:
        signature = fetching.fetch(source, f"{_REPOMD}.asc", missing_ok=True)
        if signature is None:
            raise errors.InputError(
                f"repository {source} has no {_REPOMD}.asc",
                hint="sign it (gpg --detach-sign --armor), or leave out `key:` for an unsigned repository",
            )
        fetching.verified(source, signature, data)
    try:
        listed = rpm.parse_repomd(data, f"{source} {_REPOMD}")
        entry = listed.files.get("primary")
        if entry is None:
            raise ValueError(f"{source} {_REPOMD}: lists no primary index")
        text = _proved(source, entry)
        return Read(tuple(rpm.parse_primary(text, f"{source} {entry.path}")), "modules" in listed.files)
    except ValueError as error:
        raise errors.InputError(str(error)) from error


def _proved(source: fetching.Source, entry: rpm.RepomdFile) -> bytes:
    if entry.sha256 is None:
        raise errors.InputError(
            f"{_REPOMD} of repository {source} lists no sha256 for {entry.path}", hint="createrepo_c -s sha256"
        )
    data = fetching.needed(source, entry.path)
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise errors.InputError(
            f"{entry.path} of repository {source} does not have the checksum its repomd.xml gives",
            hint="the mirror is between two updates, or damaged: try again later",
        )
    return fetching.unpacked(entry.path, data)
