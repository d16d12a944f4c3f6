"""What ssh's log and complaints say of a connection that did not come to a login. Pure.

Words of OpenSSH 8 to 10 at LogLevel DEBUG1 and LC_ALL=C.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bringup.transport import known_hosts, methods
from bringup.transport.base import Failure, FailureKind, Target, Trust
from bringup.transport.sockets import Clock

__all__ = ["Log", "failure"]

_CONNECT = (
    ("Could not resolve hostname", FailureKind.NAME),
    ("Connection refused", FailureKind.REFUSED),
    ("No route to host", FailureKind.NO_ROUTE),
    ("Network is unreachable", FailureKind.NO_ROUTE),
    ("Connection timed out", FailureKind.NO_ROUTE),
)
_GSSAPI = re.compile(r"^debug1: (?:Unspecified GSS failure|No credentials were supplied).*\n+(?!debug)(.+)$", re.M)
"""What Kerberos says stands on the line after GSSAPI's own words."""
_AUTH = ("Permission denied", "Too many authentication failures", "No supported authentication methods")


@dataclass(frozen=True, slots=True)
class Log:
    """The log file, and what came on standard error (a jump host's ssh writes there)."""

    text: str
    said: str

    @property
    def connected(self) -> bool:
        """TCP is open."""
        return "Connection established." in self.text or self.spoke

    @property
    def spoke(self) -> bool:
        """The server's version line came."""
        return "Remote protocol version" in self.text

    @property
    def authenticated(self) -> bool:
        """Logged in."""
        return "Authenticated to " in self.text

    @property
    def cut(self) -> bool:
        """The connection ended before the command did."""
        return "debug1: client_input_channel_req: channel 0 rtype exit-status" not in self.text

    @property
    def offered(self) -> str:
        """``TYPE SHA256:…`` of the server's key; empty before it came."""
        match = re.search(r"Server host (?:key|certificate): (\S+ SHA256:\S+)", self.text)
        return match[1].replace("-cert-v01@openssh.com", "").rstrip(",") if match else ""

    @property
    def methods(self) -> tuple[str, ...]:
        """How the server lets the user in, as it said last; a jump host's ssh says it in its complaint."""
        found = re.findall(r"(?:can continue: |Permission denied \()([\w,@.-]+)", self.text + self.said)
        return tuple(found[-1].split(",")) if found else ()

    @property
    def gssapi(self) -> str | None:
        """Why GSSAPI gave no login, as Kerberos says; empty where it says nothing, None where it was not tried."""
        if found := _GSSAPI.findall(self.text):
            return str(found[-1]).strip()[:200]
        return "" if "Next authentication method: gssapi" in self.text else None

    @property
    def last(self) -> str:
        """The last complaint that is no debugging line."""
        # Before the server spoke, a program on the way (ProxyCommand) knows more than ssh.
        for text in (self.text, self.said) if self.spoke else (self.said, self.text):
            lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("debug")]
            if lines:
                return lines[-1][:200]
        return "ssh gave no reason"


def failure(log: Log, target: Target, clock: Clock, *, ended: bool) -> Failure:
    """Why there was no login; ``ended`` False: a limit of ours cut it."""
    if target.jumps and not log.spoke:
        return _of_jump(log, target, clock, ended=ended)
    refused = _of_host_key(log, target)
    if refused is not None:
        return Failure(refused[0], refused[1], remedy=refused[2])
    if not ended:
        if not log.connected:
            return Failure(
                FailureKind.NO_ROUTE, f"port {target.port} did not answer in {clock.patience.connect_seconds:.0f} s"
            )
        if not log.spoke:
            reason = f"TCP opened, but no SSH banner came: it said nothing for {clock.login_limit:.0f} s"
            return Failure(FailureKind.NO_BANNER, reason)
        return Failure(FailureKind.HUNG, f"silent after its banner for {clock.login_limit:.0f} s")
    if any(word in log.text for word in _AUTH):
        return _of_login(log, target)
    if log.connected and not log.spoke:
        return Failure(FailureKind.NO_BANNER, "TCP opened, but no SSH banner came: it closed the connection")
    if not log.connected:
        for word, kind in _CONNECT:
            if word in log.text:
                return Failure(kind, _connect_reason(kind, target, log))
    return Failure(FailureKind.CLOSED, log.last)


def _of_login(log: Log, target: Target) -> Failure:
    """Neither a key nor, where the server takes it, a Kerberos ticket opened it."""
    ticket = methods.gssapi(log.methods)
    what = "no key" if "publickey" in log.methods or not ticket else "no login"
    told = f"GSSAPI: {log.gssapi or 'the ticket is not for this user'}; " if ticket and log.gssapi is not None else ""
    remedy = methods.system_remedy(log.methods, tried=log.gssapi is not None)
    return Failure(FailureKind.AUTH, f"{what} of {target.user} was accepted ({told}{log.last})", remedy=remedy)


def _connect_reason(kind: FailureKind, target: Target, log: Log) -> str:
    if kind is FailureKind.REFUSED:
        return f"nothing listens on port {target.port}"
    return log.last


def _of_host_key(log: Log, target: Target) -> tuple[FailureKind, str, str] | None:
    where = (str(target.node), target.address, target.port, log.offered or "a key")
    if "REVOKED HOST KEY" in log.text or "is revoked" in log.text or "was revoked" in log.text:
        return known_hosts.revoked(*where)
    if "IDENTIFICATION HAS CHANGED" in log.text:
        return known_hosts.changed(*where, target.host_keys)
    if "host key is known for" in log.text or "Host key verification failed" in log.text:
        if target.host_keys:
            return known_hosts.changed(*where, target.host_keys)
        # ssh has looked at the certificate, if there was one.
        return known_hosts.unknown(*where, Trust())
    return None


def _of_jump(log: Log, target: Target, clock: Clock, *, ended: bool) -> Failure:
    """The way to the node failed: by the jump host, or by what it found behind itself."""
    name = f"jump host {target.jumps[-1].address}"
    if "open failed" in log.said and "Connection refused" in log.said:
        return Failure(FailureKind.REFUSED, f"{name} cannot open {target.address}:{target.port}: Connection refused")
    if "open failed" in log.said:
        return Failure(FailureKind.JUMP, f"{name} cannot open {target.address}:{target.port}")
    if not ended:
        return Failure(FailureKind.JUMP, f"{name} did not open the way in {clock.login_limit:.0f} s")
    words = (
        ("IDENTIFICATION HAS CHANGED", FailureKind.HOST_KEY_CHANGED),
        ("REVOKED HOST KEY", FailureKind.HOST_KEY_REVOKED),
        ("host key is known for", FailureKind.HOST_KEY_UNKNOWN),
        ("Host key verification failed", FailureKind.HOST_KEY_UNKNOWN),
        ("Permission denied", FailureKind.AUTH),
        *_CONNECT,
    )
    both = log.said + log.text
    kind = next((kind for word, kind in words if word in both), None)
    lines = [line.strip() for line in log.said.splitlines() if line.strip() and not line.startswith("debug")]
    last = lines[-1][:200] if lines else log.last
    remedy = methods.system_remedy(log.methods, tried=True) if kind is FailureKind.AUTH else ""
    return Failure(FailureKind.JUMP, f"{name}: {kind}: {last}" if kind else f"{name}: {last}", remedy=remedy)
