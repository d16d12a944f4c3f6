"""Who is reached how: the fleet's `ssh:` section, ``~/.ssh/config`` for what it leaves open, host keys, jump hosts."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from pathlib import Path

from bringup.transport import known_hosts, ssh_config
from bringup.transport.base import Identity, Jump, Target, Trust
from inventory.model import Fleet, Ssh
from lockstep.base import credentials, errors
from lockstep.base.names import NodeName

__all__ = ["for_declared", "for_fleet", "for_hosts"]

_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_PROXY_COMMAND = "ProxyCommand of ~/.ssh/config is run by --transport openssh alone; or use ProxyJump"
_JUMPS = 5
"""Longest chain; a longer one is a configuration that names itself."""


def for_fleet(
    fleet: Fleet, host_keys: Mapping[NodeName, Sequence[str]] | None = None, *, config: Path | None = None
) -> dict[NodeName, Target]:
    """Every node of a fleet.

    ``host_keys`` are the accepted keys per node; None: from the fleet's known_hosts file, else the user's.
    ``config`` names another file than ~/.ssh/config. Raises `errors.InputError` when the identity cannot be read.
    """
    ways = _Ways(fleet.ssh, config)
    found = {}
    for node in fleet.nodes:
        keys = None if host_keys is None else tuple(host_keys.get(node.name, ()))
        found[node.name] = ways.target(node.name, node.address, keys)
    return found


def for_hosts(names: Sequence[str], *, config: Path | None = None, home: Path | None = None) -> dict[NodeName, Target]:
    """Hosts without a fleet file: everything from ``~/.ssh/config``, the agent, and the user's known_hosts."""
    ways = _Ways(Ssh(), config, home)
    return {NodeName(name): ways.target(NodeName(name), None, None) for name in names}


def for_declared(
    hosts: Mapping[str, tuple[str | None, Ssh]], *, config: Path | None = None, home: Path | None = None
) -> dict[NodeName, Target]:
    """Hosts with an address and a login each, as another tool's inventory declares them; the rest as `for_hosts`."""
    ways: dict[Ssh, _Ways] = {}
    found = {}
    for name, (address, ssh) in hosts.items():
        if ssh not in ways:
            ways[ssh] = _Ways(ssh, config, home)
        found[NodeName(name)] = ways[ssh].target(NodeName(name), address, None)
    return found


class _Ways:
    """Files are read and keys resolved once."""

    def __init__(self, ssh: Ssh, config: Path | None, home: Path | None = None) -> None:
        self._ssh = ssh
        self._home = home or Path.home()
        self._config = ssh_config.load(config, self._home)
        self._identity = _identity(ssh)
        self._books: dict[tuple[Path, ...], known_hosts.KnownHosts] = {}
        self._user = getpass.getuser()
        self._defaults = tuple(
            Identity(str(path)) for name in _DEFAULT_KEYS if (path := self._home / ".ssh" / name).is_file()
        )

    def target(self, node: NodeName, address: str | None, keys: tuple[str, ...] | None) -> Target:
        """``address`` None: what the configuration says of the name."""
        found = self._config.lookup(node, self._ssh.user)
        place = address or found.hostname
        port = self._ssh.port or found.port or 22
        identities = (self._identity,) if self._identity else self._identities(found)
        files = (self._ssh.known_hosts,) if self._ssh.known_hosts else self._files(found)
        names = _names(found, place, node)
        if keys is None:
            keys = self._book(files).lookup_any(names, port)
        return Target(
            node=node,
            address=place,
            port=port,
            user=self._ssh.user or found.user or self._user,
            identities=identities,
            host_keys=keys,
            jumps=self._jumps(found),
            agent=self._identity is None and not found.identities_only,
            refused=_PROXY_COMMAND if found.proxy_command else None,
            certificates=tuple(str(path) for path in found.certificate_files),
            trust=self._trust(files, names, port),
        )

    def _trust(self, files: tuple[Path, ...], names: tuple[str, ...], port: int) -> Trust:
        book = self._book(files)
        name = names[0] if port == 22 else f"[{names[0]}]:{port}"
        return Trust(book.revoked, book.authorities(names, port), name, files[0])

    def _identities(self, found: ssh_config.HostConfig) -> tuple[Identity, ...]:
        named = tuple(Identity(str(path)) for path in found.identity_files if path.is_file())
        return named or self._defaults

    def _jumps(self, found: ssh_config.HostConfig, depth: int = 0) -> tuple[Jump, ...]:
        chain: list[Jump] = []
        for index, text in enumerate(found.proxy_jump):
            login, _, rest = text.removeprefix("ssh://").rpartition("@")
            host, port = _host_port(rest)
            hop = self._config.lookup(host, login or None)
            if index == 0 and hop.proxy_jump and depth < _JUMPS:
                chain += self._jumps(hop, depth + 1)
            number = port or hop.port or 22
            chain.append(
                Jump(
                    address=hop.hostname,
                    port=number,
                    user=login or hop.user or self._user,
                    identities=self._identities(hop),
                    agent=not hop.identities_only,
                    host_keys=self._book(self._files(hop)).lookup_any(_names(hop, hop.hostname, host), number),
                    certificates=tuple(str(path) for path in hop.certificate_files),
                    trust=self._trust(self._files(hop), _names(hop, hop.hostname, host), number),
                )
            )
        return tuple(chain[-_JUMPS:])

    def _files(self, found: ssh_config.HostConfig) -> tuple[Path, ...]:
        own = found.known_hosts or (self._home / ".ssh/known_hosts", self._home / ".ssh/known_hosts2")
        return (*own, Path("/etc/ssh/ssh_known_hosts"))

    def _book(self, files: tuple[Path, ...]) -> known_hosts.KnownHosts:
        if files not in self._books:
            self._books[files] = known_hosts.load(files)
        return self._books[files]


def _names(found: ssh_config.HostConfig, address: str, name: str) -> tuple[str, ...]:
    return (found.host_key_alias,) if found.host_key_alias else tuple(dict.fromkeys((address, name)))


def _host_port(text: str) -> tuple[str, int | None]:
    """``host``, ``host:2222``, ``[::1]:2222``."""
    if text.startswith("["):
        host, _, tail = text[1:].partition("]")
        return host, int(tail[1:]) if tail[1:].isdecimal() else None
    host, colon, port = text.rpartition(":")
    return (host, int(port)) if colon and port.isdecimal() and ":" not in host else (text, None)


def _identity(ssh: Ssh) -> Identity | None:
    """The fleet's private key; read here, so that a wrong mode or a missing file stops the verb and not each node."""
    if ssh.identity is None:
        return None
    secret = credentials.resolve(ssh.identity, place="ssh.identity")
    if ssh.identity.file is not None:
        return Identity(path=str(ssh.identity.file))
    if "PRIVATE KEY" not in secret.get_secret_value():
        raise errors.InputError("it is no private key", place="ssh.identity", hint="give the key itself, in PEM form")
    return Identity(text=secret.get_secret_value())
