"""Files of a repository from a folder or over https, and their signatures: the one place here that opens a socket.

What is trusted is a chain that begins at the key which the fleet file names: each
link is proved, none is skipped when there is a key.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import lzma
import os
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lockstep.base import errors

__all__ = ["PACKED", "Source", "fetch", "needed", "unpacked", "unwrapped", "verified"]

FETCH_SECONDS: Final = 60.0
"""One file; indexes of the large vendors are below 10 MB."""
FETCH_BYTES: Final = 256 * 1024 * 1024
"""More than any index; a server that never ends must."""
UNPACKED_BYTES: Final = 2 * 1024 * 1024 * 1024
"""An index that unpacks to more is no index: Debian's whole one is 60 MB, Fedora's 200 MB."""
GPGV_SECONDS: Final = 30.0


def _zstd(data: bytes) -> bytes:
    # Late: only few repositories need it. Part of Python as compression.zstd from 3.14 on.
    from backports import zstd

    try:
        return zstd.ZstdFile(io.BytesIO(data)).read(UNPACKED_BYTES + 1)
    except zstd.ZstdError as error:
        # Its error class is none of those that the other readers share.
        raise OSError(str(error)) from error


def _read(file: lzma.LZMAFile | gzip.GzipFile | bz2.BZ2File) -> bytes:
    with file:
        return file.read(UNPACKED_BYTES + 1)


PACKED: Final[dict[str, Callable[[bytes], bytes]]] = {
    "": lambda data: data,
    ".xz": lambda data: _read(lzma.LZMAFile(io.BytesIO(data))),  # noqa: SIM115 - closed by `_read`
    ".gz": lambda data: _read(gzip.GzipFile(fileobj=io.BytesIO(data))),
    ".bz2": lambda data: _read(bz2.BZ2File(io.BytesIO(data))),
    ".zst": _zstd,
}
"""Suffix → unpacking; the one that is tried first stands first."""


def unpacked(name: str, data: bytes) -> bytes:
    """``data`` of a file of that name, unpacked by its suffix. Raises `errors.InputError`: it is damaged or huge."""
    suffix = next((suffix for suffix in PACKED if suffix and name.endswith(suffix)), "")
    try:
        text = PACKED[suffix](data)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise errors.InputError(f"{name} cannot be unpacked: {error}") from error
    if len(text) > UNPACKED_BYTES:
        raise errors.InputError(f"{name} unpacks to more than {UNPACKED_BYTES} bytes")
    return text


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


def fetch(source: Source, path: str, *, missing_ok: bool = False) -> bytes | None:
    """A file below the repository's root; None when it is not there and may be missing. Raises `errors.InputError`."""
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


def needed(source: Source, path: str) -> bytes:
    """As `fetch`, for a file that must be there."""
    data = fetch(source, path)
    assert data is not None  # noqa: S101 - only a file that may be missing gives None
    return data


def verified(source: Source, signed: bytes, detached: bytes | None = None) -> bytes:
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


def unwrapped(signed: bytes) -> bytes:
    """The text of a clear-signed file, its signature not looked at: only where the fleet names no key."""
    text = signed.replace(b"\r\n", b"\n")
    begin = text.find(b"-----BEGIN PGP SIGNED MESSAGE-----")
    if begin < 0:
        return text
    _, _, body = text[begin:].partition(b"\n\n")
    return body.partition(b"-----BEGIN PGP SIGNATURE-----")[0]
