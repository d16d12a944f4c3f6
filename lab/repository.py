"""The lab's signed APT repository: flat, one folder, signed by a key that is made once per lab."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from lab import packages
from lockstep.base import errors

__all__ = ["make", "source_line"]

KEY_ON_NODE = "/etc/apt/keyrings/lockstep.asc"
SOURCE_ON_NODE = "/etc/apt/sources.list.d/lockstep.list"
_IDENTITY = "Lockstep lab <lab@localhost>"


def make(state: Path) -> Path:
    """Build or renew ``STATE/repository`` with its public key ``key.asc``; safe to repeat; returns the folder.

    Raises `errors.EngineError` when gpg is missing or fails.
    """
    folder = state / "repository"
    stamp = folder / ".made-from"
    digest = packages.digest()
    if stamp.is_file() and stamp.read_text() == digest and (folder / "InRelease").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {path.name for path in packages.build(folder)}
    for left in folder.glob("*.deb"):
        if left.name not in wanted:
            left.unlink()
    packages.index(folder)
    _sign(state / "signing-key.asc", folder)
    stamp.write_text(digest)
    return folder


def source_line(folder: Path) -> str:
    """The apt source of a node."""
    return f"deb [signed-by={KEY_ON_NODE}] file:{folder} ./"


def _sign(secret: Path, folder: Path) -> None:
    if shutil.which("gpg") is None:
        raise errors.EngineError("gpg is missing", hint="apt-get install gpg gpg-agent")
    # A short path of its own: the agent's socket must fit into 108 characters.
    home = Path(tempfile.mkdtemp(prefix="lockstep-gpg-"))
    try:
        if secret.is_file():
            _gpg(home, "--import", str(secret))
        else:
            _gpg(home, "--passphrase", "", "--quick-gen-key", _IDENTITY, "ed25519", "sign", "never")
            exported = _gpg(home, "--passphrase", "", "--export-secret-keys", "--armor")
            with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(exported)
        (folder / "key.asc").write_bytes(_gpg(home, "--export", "--armor"))
        signed = _gpg(home, "--clearsign", "--digest-algo", "SHA256", "--output", "-", str(folder / "Release"))
        (folder / "InRelease").write_bytes(signed)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], capture_output=True)
        shutil.rmtree(home, ignore_errors=True)


def _gpg(home: Path, *arguments: str) -> bytes:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--yes", "--pinentry-mode", "loopback", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        raise errors.EngineError(f"gpg failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
