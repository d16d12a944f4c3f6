"""The lab's signed APT repository: flat, one folder, signed by a key that is made once per lab."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from lab import claims, packages
from lockstep.base import errors

__all__ = ["end_agent", "make", "source_line"]

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


def _agent_home(state: Path) -> Path:
    """A short path, the same each time: the agent's socket must fit into 108 characters, and a left one be found."""
    return claims.RUN / f"gpg-{hashlib.sha256(str(state).encode()).hexdigest()[:12]}"


def end_agent(state: Path) -> None:
    """End the lab's gpg-agent, which lives only while something is signed, and remove its folder. Safe to repeat."""
    home = _agent_home(state)
    if home.is_dir():
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], capture_output=True)
        shutil.rmtree(home, ignore_errors=True)


def _sign(secret: Path, folder: Path) -> None:
    if shutil.which("gpg") is None:
        raise errors.EngineError("gpg is missing", hint="apt-get install gpg gpg-agent")
    home = _agent_home(secret.parent)
    end_agent(secret.parent)  # of a process that was killed
    home.mkdir(mode=0o700, parents=True)
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
        end_agent(secret.parent)


def _gpg(home: Path, *arguments: str) -> bytes:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--yes", "--pinentry-mode", "loopback", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        raise errors.EngineError(f"gpg failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
