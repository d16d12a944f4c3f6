"""Connected sockets inside a deadline, for `ssh`: name resolution and TCP, each bounded."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time

from bringup.transport.base import FailureKind, Patience

__all__ = ["Clock", "Failed", "connect"]


class Failed(Exception):  # noqa: N818 - carries a result, is never shown
    """Ends one host's run with a class, a reason and a remedy."""

    def __init__(self, kind: FailureKind, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.failure = (kind, reason, remedy)


class Clock:
    """What is left until the deadline."""

    def __init__(self, patience: Patience) -> None:
        self.started = time.monotonic()
        self.patience = patience

    @property
    def spent(self) -> float:
        return time.monotonic() - self.started

    def left(self, until_seconds: float | None = None) -> float:
        """Seconds left until ``until_seconds`` after the start (None: the host deadline), at least a little."""
        limit = self.patience.host_seconds if until_seconds is None else until_seconds
        return max(min(limit, self.patience.host_seconds) - self.spent, 0.001)

    def at(self, seconds: float) -> float:
        """The monotonic time ``seconds`` after the start."""
        return self.started + seconds

    @property
    def login(self) -> float:
        return self.left(self.login_limit)

    @property
    def login_limit(self) -> float:
        """Seconds from the start until which the login must be done. Reasons name limits, never the time spent: a
        hundred nodes that hang in the same way are one finding."""
        return min(self.patience.connect_seconds + self.patience.login_seconds, self.patience.host_seconds)


def connect(address: str, port: int, clock: Clock) -> socket.socket:
    """A connected socket with TCP_NODELAY."""
    families = _resolve(address, port, clock)
    last: OSError | None = None
    for family, kind, protocol, _, place in families:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(clock.left(clock.patience.connect_seconds))
            sock.connect(place)
        except OSError as error:
            sock.close()
            last = error
        else:
            return sock
    if isinstance(last, ConnectionRefusedError):
        raise Failed(FailureKind.REFUSED, f"nothing listens on port {port}", "is sshd running there?")
    if isinstance(last, TimeoutError):
        raise Failed(FailureKind.NO_ROUTE, f"port {port} did not answer in {clock.patience.connect_seconds:.0f} s")
    raise Failed(FailureKind.NO_ROUTE, f"port {port}: {last.strerror if last else 'no address'}")


def _resolve(address: str, port: int, clock: Clock) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    """getaddrinfo with a limit: the library call has none and may wait half a minute on a dead name server."""
    try:
        version = ipaddress.ip_address(address).version
    except ValueError:
        pass
    else:
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))]
    answer: list[object] = []

    def ask() -> None:
        try:
            answer.append(socket.getaddrinfo(address, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answer.append(error)

    thread = threading.Thread(target=ask, daemon=True, name=f"resolve {address}")
    thread.start()
    thread.join(clock.left(clock.patience.connect_seconds))
    if not answer:
        raise Failed(FailureKind.NAME, f"{address} was not resolved in {clock.patience.connect_seconds:.0f} s")
    if isinstance(answer[0], OSError):
        raise Failed(FailureKind.NAME, f"{address}: {answer[0].strerror or answer[0]}", "give its address")
    return answer[0]  # type: ignore[return-value]
