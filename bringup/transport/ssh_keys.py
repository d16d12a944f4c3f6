"""Private keys, certificates and agents for `ssh`: parsed once, with the reason where there is none."""

from __future__ import annotations

import contextlib
import copy
import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paramiko
from paramiko.ssh_exception import PasswordRequiredException, SSHException

from bringup.transport.base import Identity

__all__ = ["agent_keys", "certified", "load", "text"]


def load(identity: Identity) -> paramiko.PKey | str:
    """The parsed key with the certificate that lies beside it, or why there is none (an RSA key costs 0.1 s)."""
    shown = identity.path or "the identity"
    try:
        key = _parsed(identity)
    except (PasswordRequiredException, TypeError):
        # cryptography says by a TypeError that a password is missing.
        return f"{shown} is encrypted: load it into an agent"
    except (SSHException, ValueError, OSError, paramiko.pkey.UnknownKeyType) as error:
        return f"{shown}: {text(error)}"
    if identity.path is not None and (certificate := Path(f"{identity.path}-cert.pub")).is_file():
        with contextlib.suppress(SSHException, ValueError):
            key.load_certificate(str(certificate))
    return key


def _parsed(identity: Identity) -> paramiko.PKey:
    if identity.path is not None:
        return paramiko.PKey.from_path(identity.path)
    given = identity.text or ""
    last: Exception = ValueError("no private key")
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        try:
            return kind.from_private_key(io.StringIO(given if given.endswith("\n") else given + "\n"))
        except PasswordRequiredException:
            raise
        except (SSHException, ValueError) as error:
            last = error
    raise SSHException(str(last))


def agent_keys() -> list[paramiko.PKey]:
    """Keys of the running agent; none when there is no agent."""
    try:
        agent = paramiko.Agent()
        keys: list[paramiko.PKey] = list(agent.get_keys())
    except (SSHException, OSError):
        return []
    # One socket serves all threads, and paramiko does not guard it: request and answer must not interleave.
    guard = threading.Lock()
    connection: Any = agent
    plain = connection._send_message

    def guarded(message: object) -> object:
        with guard:
            return plain(message)

    connection._send_message = guarded
    return keys


def certified(key: paramiko.PKey, certificates: Sequence[str]) -> paramiko.PKey | None:
    """A copy of the key that presents the one of ``certificates`` (paths) made for it; None when none was."""
    # What a certificate holds of its key is the key's own public fields, without the type name before them.
    fields = key.asbytes()[4 + len(key.get_name()) :]
    for path in certificates:
        try:
            blob = paramiko.pkey.PublicBlob.from_file(path)
        except (SSHException, ValueError, OSError, IndexError):
            continue
        if fields in blob.key_blob:
            found = copy.copy(key)
            found.public_blob = blob
            return found
    return None


def text(error: BaseException | None) -> str:
    """A reason to show, never empty."""
    return str(error).strip() or type(error).__name__ if error is not None else "no reason given"
