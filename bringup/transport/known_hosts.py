"""Host keys from known_hosts files, parsed once into dictionaries.

Own, since paramiko's loader is quadratic and its look-up linear: at 10,000 lines
20 s and 5 ms a host. Hashed lines cost one HMAC each, and only when the plain
names do not know the host. ``@revoked`` keys are refused by name. A host known
only by ``@cert-authority`` is refused by name as well: paramiko checks no host
certificates, the system's ssh does.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import fnmatch
import hashlib
import hmac
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from bringup.transport.base import FailureKind, Trust

__all__ = ["KnownHosts", "changed", "fingerprint", "load", "parse", "refusal", "remember", "revoked", "unknown"]


def fingerprint(key: str) -> str:
    """``TYPE BASE64`` → ``SHA256:…`` as OpenSSH prints it; the text itself when it is no key."""
    try:
        blob = base64.b64decode(key.split()[1], validate=True)
    except (IndexError, binascii.Error):
        return key
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


class KnownHosts:
    """Accepted keys by host name or address; filled by `parse`."""

    def __init__(self) -> None:
        self._plain: dict[str, list[str]] = {}
        self._hashed: list[tuple[bytes, bytes, str]] = []
        self._patterns: list[tuple[tuple[str, ...], str]] = []
        self._revoked: dict[str, None] = {}
        self._authorities: KnownHosts | None = None

    def add(self, hosts: str, key: str, marker: str = "") -> None:
        """One line: the comma list (or hash) of its first field, ``TYPE BASE64``, and ``@revoked`` or
        ``@cert-authority`` before both."""
        if marker == "@revoked":
            # For every host, whatever names the line gives: a key that is known to be lost proves nobody.
            self._revoked[key] = None
            return
        if marker == "@cert-authority":
            self._authorities = self._authorities or KnownHosts()
            self._authorities.add(hosts, key)
            return
        if hosts.startswith("|1|"):
            try:
                salt, digest = (base64.b64decode(part, validate=True) for part in hosts[3:].split("|"))
            except (ValueError, binascii.Error):
                return
            self._hashed.append((salt, digest, key))
            return
        names = tuple(name.lower() for name in hosts.split(",") if name)
        if any(char in name for name in names for char in "*?!"):
            self._patterns.append((names, key))
            return
        for name in names:
            self._plain.setdefault(name, []).append(key)

    def lookup(self, host: str, port: int = 22) -> tuple[str, ...]:
        """Accepted keys of a host, revoked ones left out; empty when it is not known."""
        return self.lookup_any((host,), port)

    def lookup_any(self, hosts: Iterable[str], port: int = 22) -> tuple[str, ...]:
        """Keys known under any of the names, plain names first."""
        names = [host.lower() if port == 22 else f"[{host.lower()}]:{port}" for host in hosts]
        found: dict[str, None] = {}
        for name in names:
            found.update(dict.fromkeys(self._plain.get(name, ())))
            for patterns, key in self._patterns:
                if _matches(patterns, name):
                    found[key] = None
        if not found:
            for name in names:
                found.update(dict.fromkeys(self._by_hash(name)))
        return tuple(key for key in found if key not in self._revoked)

    @property
    def revoked(self) -> tuple[str, ...]:
        """Keys of ``@revoked`` lines."""
        return tuple(self._revoked)

    def authorities(self, hosts: Iterable[str], port: int = 22) -> tuple[str, ...]:
        """Keys of ``@cert-authority`` lines that cover one of the names."""
        found = self._authorities.lookup_any(hosts, port) if self._authorities is not None else ()
        return tuple(key for key in found if key not in self._revoked)

    def _by_hash(self, name: str) -> list[str]:
        text = name.encode()
        return [key for salt, digest, key in self._hashed if hmac.digest(salt, text, "sha1") == digest]


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    matched = False
    for pattern in patterns:
        wanted = pattern.removeprefix("!").replace("[", "[[]")
        if fnmatch.fnmatchcase(name, wanted):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def parse(text: str, into: KnownHosts | None = None) -> KnownHosts:
    """The lines of one file. Lines that are no host key are skipped, as ssh does."""
    known = into if into is not None else KnownHosts()
    for line in text.splitlines():
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        marker = fields.pop(0) if fields[0].startswith("@") else ""
        if len(fields) < 3 or marker not in ("", "@revoked", "@cert-authority"):
            continue
        known.add(fields[0], f"{fields[1]} {fields[2]}", marker)
    return known


def load(paths: Iterable[Path]) -> KnownHosts:
    """Every file that exists and can be read; a missing one knows nobody."""
    known = KnownHosts()
    for path in paths:
        try:
            parse(path.read_text(encoding="utf-8", errors="replace"), known)
        except OSError:
            continue
    return known


def remember(trust: Trust, key: str) -> None:
    """Append the first key of a host that had none to its known_hosts file (0600 when made). Raises `OSError`."""
    if trust.file is None:
        raise FileNotFoundError(f"no known_hosts file to write {trust.name} to")
    trust.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(trust.file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        line = f"{trust.name} {key}"
        if line not in text.splitlines():
            file.write(f"{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n")


def refusal(
    name: str, address: str, port: int, offered: str, known: Sequence[str], trust: Trust | None = None
) -> tuple[FailureKind, str, str] | None:
    """Why a server that offers ``TYPE BASE64`` is refused: class, reason, remedy; None when it is known."""
    given = trust or Trust()
    shown = f"{offered.split()[0]} {fingerprint(offered)}"
    if offered in given.revoked:
        return revoked(name, address, port, shown)
    if offered in known:
        return None
    return unknown(name, address, port, shown, given) if not known else changed(name, address, port, shown, known)


def revoked(name: str, address: str, port: int, shown: str) -> tuple[FailureKind, str, str]:
    """The refusal of a key that known_hosts marks as lost."""
    return (
        FailureKind.HOST_KEY_REVOKED,
        f"{name} ({address} port {port}) offers {shown}, which known_hosts marks @revoked",
        "make a new host key on the node, and take its line into known_hosts",
    )


def unknown(name: str, address: str, port: int, shown: str, trust: Trust) -> tuple[FailureKind, str, str]:
    """The refusal of a host of which no key is known."""
    place = f"{name} ({address} port {port})"
    if trust.authorities:
        return (
            FailureKind.HOST_KEY_UNKNOWN,
            f"{place} offers {shown}; known_hosts trusts it by @cert-authority alone, and no host certificates are "
            "checked here",
            "--transport openssh checks host certificates; or add the key itself to known_hosts",
        )
    return (
        FailureKind.HOST_KEY_UNKNOWN,
        f"{place} offers {shown}, and no key is known for it",
        f"compare the fingerprint at its console, then: ssh-keyscan -p {port} {address} >> KNOWN_HOSTS; "
        "or take what is offered, this once, by --accept-new-host-keys",
    )


def changed(name: str, address: str, port: int, shown: str, known: Sequence[str]) -> tuple[FailureKind, str, str]:
    """The refusal of a host that has other keys than the known ones."""
    alike = [key for key in known if key.split()[0] == shown.split()[0]] or list(known)
    expected = ", ".join(f"{key.split()[0]} {fingerprint(key)}" for key in alike)
    return (
        FailureKind.HOST_KEY_CHANGED,
        f"{name} ({address} port {port}) offers {shown}, known is {expected}",
        "somebody else may answer there; a re-imaged or exchanged machine comes back by `lockstep replace`, "
        "else compare the fingerprint at its console and remove the old line from known_hosts",
    )
