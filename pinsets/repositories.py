"""Fetches the signed index of an APT repository, from a folder or over https: the one place here that opens a socket.

What is trusted is the chain key → InRelease → checksum of ``Packages`` → checksums
of packages; each link is proved here, none is skipped when the fleet names a key.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import lzma
import os
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lockstep.base import errors
from pinsets import apt

__all__ = ["Source", "packages"]

FETCH_SECONDS: Final = 60.0
"""One file; indexes of the large vendors are below 10 MB."""
FETCH_BYTES: Final = 256 * 1024 * 1024
"""More than any index; a server that never ends must."""
GPGV_SECONDS: Final = 30.0

_UNPACK: Final[dict[str, Callable[[bytes], bytes]]] = {
    "": lambda data: data,
    ".xz": lzma.decompress,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
}


class Source:
    """One repository of a fleet file."""

    def __init__(
        self, address: str, suite: str = "./", components: tuple[str, ...] = (), key: Path | None = None
    ) -> None:
        self.address = address
        """URL, `file:PATH` or a plain path; without the slash at its end."""
        self.suite = suite
        self.components = components
        self.key = key
        """Public key, armoured or binary; None: signature not checked."""

    def __str__(self) -> str:
        return f"{self.address} {self.suite}".strip()

    @property
    def folder(self) -> str:
        """Path of the release file's folder, below the root; ``""`` for a flat repository."""
        if self.suite.endswith("/"):
            return "" if self.suite in ("./", "/") else self.suite.rstrip("/") + "/"
        return f"dists/{self.suite}/"


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
    signed = _fetch(source, f"{source.folder}InRelease", missing_ok=True)
    if signed is not None:
        text = _verified(source, signed) if source.key is not None else _unwrapped(signed)
        return _checksums(source, text)
    plain = _fetch(source, f"{source.folder}Release", missing_ok=True)
    if source.key is not None:
        signature = _fetch(source, f"{source.folder}Release.gpg", missing_ok=True) if plain is not None else None
        if plain is None or signature is None:
            raise errors.InputError(
                f"repository {source} has neither InRelease nor Release with Release.gpg",
                hint="sign it, or leave out `key:` for an unsigned repository",
            )
        return _checksums(source, _verified(source, signature, plain))
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
    for suffix, unpack in _UNPACK.items():
        if (wanted := release.get(name + suffix)) is None:
            continue
        data = _fetch(source, f"{source.folder}{name}{suffix}", missing_ok=True)
        if data is None:
            # Many repositories list the plain index and keep only the packed one.
            continue
        if hashlib.sha256(data).hexdigest() != wanted[0]:
            raise errors.InputError(
                f"{name}{suffix} of repository {source} does not have the checksum its release file gives",
                hint="the mirror is between two updates, or damaged: try again later",
            )
        return unpack(data).decode("utf-8", "replace")
    raise errors.InputError(f"the release file of repository {source} does not list {name}", hint="check the suite")


def _fetch(source: Source, path: str, *, missing_ok: bool = False) -> bytes | None:
    if not source.address.startswith(("http://", "https://")):
        file = Path(source.address.removeprefix("file:")) / path
        try:
            return file.read_bytes()
        except FileNotFoundError:
            if missing_ok and file.parent.is_dir():
                return None
            raise errors.InputError(f"repository {source}: there is no {file}") from None
        except OSError as error:
            raise errors.InputError(f"repository {source}: cannot read {file}: {error.strerror}") from error
    url = f"{source.address.rstrip('/')}/{path}"
    try:
        with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as answer:  # noqa: S310 - http and https only, above
            data: bytes = answer.read(FETCH_BYTES + 1)
    except urllib.error.HTTPError as error:
        if missing_ok and error.code in (403, 404):
            return None
        raise errors.InputError(f"repository {source}: {url} answered {error.code}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise errors.InputError(f"repository {source}: {url} cannot be fetched: {reason}") from error
    if len(data) > FETCH_BYTES:
        raise errors.InputError(f"repository {source}: {path} is larger than {FETCH_BYTES} bytes")
    return data


def _verified(source: Source, signed: bytes, detached: bytes | None = None) -> bytes:
    """The text that the fleet's key signed. ``signed`` is InRelease, or a detached signature of ``detached``."""
    assert source.key is not None  # noqa: S101 - callers ask only then
    try:
        key = source.key.read_bytes()
    except OSError as error:
        raise errors.InputError(f"cannot read the key {source.key} of {source}: {error.strerror}") from error
    with tempfile.TemporaryDirectory(prefix="lockstep-gpgv-") as name:
        folder = Path(name)
        (folder / "key.gpg").write_bytes(_dearmoured(key, source.key))
        (folder / "signed").write_bytes(signed)
        command = [
            "gpgv",
            "--keyring",
            str(folder / "key.gpg"),
            "--output",
            str(folder / "text"),
            str(folder / "signed"),
        ]
        if detached is not None:
            (folder / "plain").write_bytes(detached)
            command = [*command[:3], str(folder / "signed"), str(folder / "plain")]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=GPGV_SECONDS,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError as error:
            raise errors.EngineError(
                "gpgv is missing, so the repository's signature cannot be checked", hint="apt-get install gpgv"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise errors.EngineError(f"gpgv did not answer in {GPGV_SECONDS:.0f} s") from error
        if done.returncode != 0:
            said = [line.removeprefix("gpgv: ") for line in done.stderr.splitlines() if line.strip()]
            raise errors.InputError(
                f"repository {source} is not signed by {source.key}: {said[-1] if said else 'gpgv refused it'}",
                hint="the fleet file names the wrong key, or somebody stands in between",
            )
        return detached if detached is not None else (folder / "text").read_bytes()


def _dearmoured(key: bytes, path: Path) -> bytes:
    """gpgv reads binary keyrings only."""
    if not key.lstrip().startswith(b"-----BEGIN PGP PUBLIC KEY BLOCK-----"):
        return key
    found = b""
    for block in re.findall(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(.*?)-----END PGP", key, re.DOTALL):
        _, blank, body = re.sub(rb"\r", b"", block).partition(b"\n\n")
        lines = [line for line in (body if blank else block).splitlines() if line and not line.startswith(b"=")]
        try:
            found += base64.b64decode(b"".join(lines), validate=True)
        except ValueError as error:
            raise errors.InputError(f"{path} is no armoured public key") from error
    return found


def _unwrapped(signed: bytes) -> bytes:
    """The text of a clear-signed file, its signature not looked at: only where the fleet names no key."""
    text = signed.replace(b"\r\n", b"\n")
    begin = text.find(b"-----BEGIN PGP SIGNED MESSAGE-----")
    if begin < 0:
        return text
    _, _, body = text[begin:].partition(b"\n\n")
    return body.partition(b"-----BEGIN PGP SIGNATURE-----")[0]
