"""What a transport is: one script to one node, one answer or one classed failure. Opens nothing itself."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lockstep.base import limits
from lockstep.base.names import NodeName

__all__ = ["Failure", "FailureKind", "Identity", "Jump", "Outcome", "Patience", "Target", "Transport", "Trust"]


class FailureKind(enum.StrEnum):
    """Why a node gave no answer; the words of reports."""

    NAME = "name"
    """Its name does not resolve."""
    REFUSED = "refused"
    """Nothing listens on the port."""
    NO_ROUTE = "no route"
    """No answer to the TCP connect: a black hole, or a router that says so."""
    NO_BANNER = "no banner"
    """TCP opened, but no SSH server spoke in time."""
    HOST_KEY_UNKNOWN = "host key unknown"
    HOST_KEY_CHANGED = "host key changed"
    HOST_KEY_REVOKED = "host key revoked"
    AUTH = "auth"
    HUNG = "hung"
    """The server spoke and then fell silent: before login, or with nothing of the script's output."""
    CLOSED = "closed"
    """The connection was cut half way."""
    BAD_OUTPUT = "bad output"
    """Something answered, but not our script."""
    JUMP = "jump"
    """The jump host before it failed."""

    @property
    def may_heal(self) -> bool:
        """Whether another try with more patience can end better."""
        return self not in (
            FailureKind.HOST_KEY_UNKNOWN,
            FailureKind.HOST_KEY_CHANGED,
            FailureKind.HOST_KEY_REVOKED,
            FailureKind.AUTH,
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key: the path of its file, or its text (which is never printed)."""

    path: str | None = None
    text: str | None = None

    def __repr__(self) -> str:
        return f"Identity(path={self.path!r})"


@dataclass(frozen=True, slots=True)
class Trust:
    """What known_hosts files say of one host besides its keys."""

    revoked: tuple[str, ...] = ()
    """``TYPE BASE64`` of keys marked ``@revoked``: never accepted, whoever offers them."""
    authorities: tuple[str, ...] = ()
    """Keys of ``@cert-authority`` lines that cover the host."""
    name: str = ""
    """Under which a new key would be written: alias, ``HOST`` or ``[HOST]:PORT``."""
    file: Path | None = None
    """The known_hosts file that a new key would be written to, and only where the user says so."""

    @property
    def host(self) -> str:
        """`name` without brackets and port: the name that a host certificate must be made for."""
        return self.name.removeprefix("[").partition("]")[0]


@dataclass(frozen=True, slots=True)
class Jump:
    """A host that the connection goes through (ProxyJump)."""

    address: str
    port: int
    user: str
    identities: tuple[Identity, ...] = ()
    agent: bool = True
    host_keys: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    trust: Trust = Trust()


@dataclass(frozen=True, slots=True)
class Target:
    """One node as a transport needs it."""

    node: NodeName
    address: str
    port: int
    user: str
    identities: tuple[Identity, ...] = ()
    """Tried in this order."""
    host_keys: tuple[str, ...] = ()
    """Accepted keys as ``TYPE BASE64``. Empty: none is known, and the node is refused."""
    jumps: tuple[Jump, ...] = ()
    """First hop first."""
    agent: bool = True
    """Whether the keys of a running agent are tried after `identities`."""
    refused: str | None = None
    """Why our own client cannot reach it as configured (``ProxyCommand``): it tries nothing then."""
    certificates: tuple[str, ...] = ()
    """Paths of the user's certificates (``CertificateFile``), each used with the identity that it certifies."""
    trust: Trust = Trust()


@dataclass(frozen=True, slots=True)
class Patience:
    """Time-outs in seconds, each below the next; the host's is hard and closes the socket."""

    connect_seconds: float = limits.SSH_CONNECT_SECONDS
    login_seconds: float = limits.SSH_LOGIN_SECONDS
    script_seconds: float = limits.SCRIPT_SECONDS
    command_seconds: float = limits.COMMAND_SECONDS
    host_seconds: float = limits.HOST_DEADLINE_SECONDS

    def times(self, factor: float) -> Patience:
        """All of them multiplied."""
        return Patience(
            self.connect_seconds * factor,
            self.login_seconds * factor,
            self.script_seconds * factor,
            self.command_seconds * factor,
            self.host_seconds * factor,
        )

    @classmethod
    def within(cls, host_seconds: float) -> Patience:
        """The usual proportions inside another host deadline; longer ones do not stretch the connect."""
        return cls().times(host_seconds / limits.HOST_DEADLINE_SECONDS)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back. Partial when the deadline cut it: then ``status`` is None."""

    stdout: bytes
    stderr: bytes
    status: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer, and why."""

    kind: FailureKind
    reason: str
    seconds: float = 0.0
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


class Transport(Protocol):
    """One script to one node. Called from many threads at once."""

    def run(self, target: Target, script: str, patience: Patience) -> Outcome | Failure:
        """Feed ``script`` to ``sh -s`` there. Never raises for the node's sake; ends by ``patience.host_seconds``."""
        ...

    def cut(self, node: NodeName) -> None:
        """End a running call for this node, with what has come so far; others go on."""
        ...

    def close(self) -> None:
        """Cut every open connection; running calls end at once with a failure."""
        ...
