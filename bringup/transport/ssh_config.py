"""``~/.ssh/config`` for the words that reading needs: HostName, User, Port, IdentityFile, IdentitiesOnly,
CertificateFile, ProxyJump, UserKnownHostsFile, HostKeyAlias; Host, Match and Include.

Differs from ssh: ``Match exec``, ``canonical`` and ``final`` never match (no program is run for a look-up), and
``StrictHostKeyChecking`` is not read (keys are always verified). ``ProxyCommand`` is reported, not run.
"""

from __future__ import annotations

import fnmatch
import getpass
import shlex
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["HostConfig", "SshConfig", "load", "parse"]

INCLUDE_DEPTH = 16
"""ssh's own limit."""


@dataclass(frozen=True, slots=True)
class HostConfig:
    """What the files say of one host; None where they say nothing."""

    hostname: str
    user: str | None = None
    port: int | None = None
    identity_files: tuple[Path, ...] = ()
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    proxy_jump: tuple[str, ...] = ()
    """``[user@]host[:port]`` in order, first hop first."""
    proxy_command: str | None = None
    known_hosts: tuple[Path, ...] = ()
    """`UserKnownHostsFile`; empty: the default files."""
    host_key_alias: str | None = None


@dataclass(slots=True)
class _Block:
    kind: str
    """``host`` or ``match``."""
    criteria: list[str]
    options: list[tuple[str, list[str]]] = field(default_factory=list)


class SshConfig:
    """Parsed blocks, in order; the first value of an option wins."""

    def __init__(self, blocks: list[_Block] | None = None, home: Path | None = None) -> None:
        self._blocks = blocks or []
        self._home = home or Path.home()

    def lookup(self, host: str, user: str | None = None) -> HostConfig:
        """What ssh would use for ``host`` as typed; ``user`` is the login given elsewhere."""
        first: dict[str, list[str]] = {}
        lists: dict[str, list[str]] = {"identityfile": [], "certificatefile": []}
        for block in self._blocks:
            if not self._applies(block, host, first, user):
                continue
            for key, values in block.options:
                if key in lists:
                    lists[key] += values[:1]
                else:
                    first.setdefault(key, values)
        return self._assemble(host, first, lists)

    def _assemble(self, host: str, first: dict[str, list[str]], lists: dict[str, list[str]]) -> HostConfig:
        login = first.get("user", [None])[0]
        hostname = first.get("hostname", [host])[0].replace("%h", host).replace("%%", "%")
        port = first.get("port", [""])[0]
        tokens = {"%h": hostname, "%n": host, "%r": login or getpass.getuser(), "%p": port or "22"}
        tokens |= {"%d": str(self._home), "%u": getpass.getuser()}
        jump = _expand(first.get("proxyjump", [""])[0], tokens)
        command = " ".join(first.get("proxycommand", []))
        known = first.get("userknownhostsfile", [])
        return HostConfig(
            hostname=hostname,
            user=login,
            port=int(port) if port.isdecimal() else None,
            identity_files=self._paths(lists["identityfile"], tokens),
            certificate_files=self._paths(lists["certificatefile"], tokens),
            identities_only=first.get("identitiesonly", ["no"])[0].lower() == "yes",
            proxy_jump=() if jump.lower() in ("", "none") else tuple(part.strip() for part in jump.split(",")),
            proxy_command=command if command and command.lower() != "none" and not jump else None,
            known_hosts=self._paths(known, tokens),
            host_key_alias=first.get("hostkeyalias", [None])[0],
        )

    def _applies(self, block: _Block, host: str, first: dict[str, list[str]], user: str | None) -> bool:
        if block.kind == "host":
            return _pattern_list(block.criteria, host)
        words = list(block.criteria)
        if not words:
            return False
        while words:
            word = words.pop(0).lower()
            negated = word.startswith("!")
            word = word.lstrip("!")
            if word == "all":
                matched = True
            elif word in ("host", "originalhost", "user", "localuser") and words:
                value = {
                    "host": first.get("hostname", [host])[0].replace("%h", host),
                    "originalhost": host,
                    "user": user or first.get("user", [getpass.getuser()])[0],
                    "localuser": getpass.getuser(),
                }[word]
                matched = _pattern_list(words.pop(0).split(","), value)
            else:
                return False
            if matched == negated:
                return False
        return True

    def _paths(self, values: list[str], tokens: dict[str, str]) -> tuple[Path, ...]:
        return tuple(self._path(value, tokens) for value in values if value.lower() != "none")

    def _path(self, text: str, tokens: dict[str, str]) -> Path:
        expanded = _expand(text, tokens)
        if expanded.startswith("~/"):
            return self._home / expanded[2:]
        path = Path(expanded)
        return path if path.is_absolute() else self._home / ".ssh" / path


def _expand(text: str, tokens: dict[str, str]) -> str:
    out = []
    index = 0
    while index < len(text):
        pair = text[index : index + 2]
        if pair == "%%":
            out.append("%")
            index += 2
        elif pair in tokens:
            out.append(tokens[pair])
            index += 2
        else:
            out.append(text[index])
            index += 1
    return "".join(out)


def _pattern_list(patterns: list[str], value: str) -> bool:
    matched = False
    for pattern in patterns:
        if fnmatch.fnmatchcase(value.lower(), pattern.removeprefix("!").lower().replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def parse(text: str, home: Path | None = None, depth: int = 0) -> list[_Block]:
    """Blocks of one file, those of its includes in place."""
    home = home or Path.home()
    blocks = [_Block("host", ["*"])]
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        key, _, rest = line.replace("=", " ", 1).partition(" ") if "=" in line.split()[0] else line.partition(" ")
        key = key.strip().lower()
        values = _words(rest.strip().removeprefix("=").strip())
        if key in ("host", "match"):
            blocks.append(_Block(key, values))
        elif key == "include" and depth < INCLUDE_DEPTH:
            blocks += _included(values, blocks[-1], home, depth)
        elif values:
            blocks[-1].options.append((key, values))
    return blocks


def _included(values: list[str], current: _Block, home: Path, depth: int) -> list[_Block]:
    """Blocks of included files; inside a Host block only their leading options count, and only for its hosts."""
    found: list[_Block] = []
    for value in values:
        path = Path(value.replace("~/", f"{home}/", 1)) if value.startswith("~/") else Path(value)
        path = path if path.is_absolute() else home / ".ssh" / path
        for file in sorted(path.parent.glob(path.name)):
            try:
                text = file.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            inner = parse(text, home, depth + 1)
            if current.kind == "host" and current.criteria == ["*"]:
                found += inner
            else:
                current.options += [option for block in inner[:1] for option in block.options]
    return [*found, _Block(current.kind, list(current.criteria))] if found else []


def load(path: Path | None = None, home: Path | None = None) -> SshConfig:
    """The user's file and then /etc/ssh/ssh_config, as ssh reads them; ``path`` names one other file (``ssh -F``)."""
    home = home or Path.home()
    blocks: list[_Block] = []
    for file in (path,) if path else (home / ".ssh" / "config", Path("/etc/ssh/ssh_config")):
        try:
            blocks += parse(file.read_text(encoding="utf-8", errors="replace"), home)
        except OSError:
            continue
    return SshConfig(blocks, home)
