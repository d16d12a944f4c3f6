"""One script to one host over SSH, by paramiko tuned for sweeps.

What the tuning buys (client CPU per host): own host-key dictionaries instead of paramiko's files (342 → 7 ms at
1,000 known hosts), keys parsed once (128 ms per RSA key), TCP_NODELAY (45 ms of wall), cheap algorithms preferred, one
thread per host instead of two (`talk`). Algorithms are preferences: a server without them is still served.

Paramiko bounds each stage but not the host, so every wait here is bounded by what is left of one monotonic
deadline, and the socket is closed at its end.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence

import paramiko
from paramiko.auth_handler import AuthHandler
from paramiko.ssh_exception import IncompatiblePeer, PartialAuthentication, SSHException

from bringup.transport import known_hosts, methods, sockets, ssh_keys
from bringup.transport.base import Failure, FailureKind, Identity, Jump, Outcome, Patience, Target
from bringup.transport.sockets import Clock, Failed
from bringup.transport.talk import Ended, Session, Steps, Wire, execute, open_session
from lockstep.base import limits
from lockstep.base.names import NodeName

__all__ = ["Ssh"]

_KEX = ("curve25519-sha256", "curve25519-sha256@libssh.org", "mlkem768x25519-sha256", "ecdh-sha2-nistp256")
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr")
_RSA = ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")
_KEYS_TRIED = 5
"""Servers cut the connection at six attempts (MaxAuthTries)."""
_READ_BYTES = 64 * 1024
_PILED_BYTES = 1024 * 1024
"""Half of paramiko's window."""
_STATUS_SECONDS = 1.0
"""How long the exit status may come after the end of the output."""
_RELAY_FAILURE_SECONDS = 15.0
"""A jump host that failed is not tried again for each of its thousand nodes."""


class Ssh:
    """The transport. One object per sweep; threads share its keys, agent and jump hosts."""

    def __init__(self, *, accept_new: bool = False) -> None:
        """``accept_new`` takes the key of a host that has none, and writes it to the target's known_hosts file."""
        self._accept_new = accept_new
        # Every dead host would print a traceback of paramiko's thread; its reason is in our failure already.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)
        self._lock = threading.Lock()
        self._keys: dict[Identity, paramiko.PKey | str] = {}
        self._agent: list[paramiko.PKey] | None = None
        self._open: dict[Session, NodeName | None] = {}
        self._relays: dict[tuple[Jump, ...], _Relay] = {}
        self._closed = False

    def run(self, target: Target, script: str, patience: Patience) -> Outcome | Failure:
        """See `base.Transport.run`."""
        clock = Clock(patience)
        if target.refused:
            return Failure(FailureKind.NO_ROUTE, target.refused)
        try:
            sock = self._way(target, clock)
            wire = Wire(sock, clock.at(clock.login_limit))
            session = self._begun(wire, target, lambda one: self._reading(one, target, script, clock))
            try:
                session.converse()
                answer: Outcome | Failure = session.talk.result()
                return answer
            finally:
                self._forget(session)
        except Failed as failed:
            kind, reason, remedy = failed.failure
            return Failure(kind, reason, clock.spent, remedy)
        except (SSHException, EOFError, OSError) as error:
            return Failure(FailureKind.CLOSED, ssh_keys.text(error), clock.spent)

    def cut(self, node: NodeName) -> None:
        """See `base.Transport.cut`."""
        with self._lock:
            sessions = [session for session, name in self._open.items() if name == node]
        for session in sessions:
            session.cut()

    def close(self) -> None:
        """Cut every connection."""
        with self._lock:
            self._closed = True
            sessions = list(self._open)
            self._relays.clear()
        for session in sessions:
            session.cut()

    def _way(self, target: Target, clock: Clock) -> socket.socket | paramiko.Channel:
        """A socket to the node, through its jump hosts if it has any."""
        if not target.jumps:
            return sockets.connect(target.address, target.port, clock)
        with self._lock:
            relay = self._relays.setdefault(target.jumps, _Relay(target.jumps))
        return relay.channel(self, target, clock)

    def _begun(self, wire: Wire, target: Target | Jump, steps: Callable[[Session], Steps]) -> Session:
        """A session that has said nothing yet; one more to cut when the sweep is stopped."""
        session = Session(wire, steps)
        _prefer(session, target.host_keys)
        with self._lock:
            if self._closed:
                wire.cut()
                raise Failed(FailureKind.CLOSED, "the sweep was stopped")
            self._open[session] = target.node if isinstance(target, Target) else None
        return session

    def shared(self, sock: socket.socket | paramiko.Channel, jump: Jump, clock: Clock) -> Session:
        """Logged in to a jump host, read by a thread of its own from then on."""
        wire = Wire(sock, clock.at(clock.login_limit), shared=True)
        session = self._begun(wire, jump, lambda one: self._login(one, jump, clock, jump.address))
        try:
            session.converse()
            session.talk.result()
        except BaseException:
            self._forget(session)
            raise
        return session

    def _reading(self, session: Session, target: Target, script: str, clock: Clock) -> Steps:
        yield from self._login(session, target, clock, target.node)
        session.wire.until = clock.at(clock.patience.host_seconds)
        return (yield from _feed(session, script, clock))

    def _login(self, session: Session, target: Target | Jump, clock: Clock, name: str) -> Steps:
        """Key exchange, host key, authentication; the session may open channels then."""
        try:
            yield session.negotiated.is_set
        except Ended as ended:
            raise _silent(session, clock, ended) from None
        self._verify(session, target, name)
        yield from self._authenticate(session, target, clock)
        session.wire.until = None

    def _verify(self, transport: Session, target: Target | Jump, name: str) -> None:
        """The server's key must be one of the known; nothing is learnt from the network but where the user says so."""
        offered = transport.get_remote_server_key()
        shown = f"{offered.get_name()} {offered.get_base64()}"
        refusal = known_hosts.refusal(name, target.address, target.port, shown, target.host_keys, target.trust)
        if refusal is None:
            return
        new = refusal[0] is FailureKind.HOST_KEY_UNKNOWN and not target.trust.authorities
        if not (self._accept_new and new and target.trust.file is not None):
            raise Failed(*refusal)
        try:
            known_hosts.remember(target.trust, shown)
        except OSError as error:
            reason = f"its key was not accepted, since {target.trust.file} cannot be written: {error.strerror}"
            raise Failed(FailureKind.HOST_KEY_UNKNOWN, reason) from error

    def _authenticate(self, session: Session, target: Target | Jump, clock: Clock) -> Steps:
        problems: list[str] = []
        tried = 0
        taken: Sequence[str] = ()
        try:
            for key in self._candidates(target, problems):
                if tried == _KEYS_TRIED:
                    break
                tried += 1
                answered = threading.Event()
                session.auth_publickey(target.user, key, answered)
                yield answered.is_set
                if session.is_authenticated():
                    return
                error = session.get_exception()
                if isinstance(error, PartialAuthentication):
                    problems.append("the server asks for more than a key")
                    break
                if isinstance(error, paramiko.BadAuthenticationType):
                    break
            taken = yield from _methods(session, target.user)
        except SSHException as error:
            problems.append(ssh_keys.text(error))
        except Ended as ended:
            if ended.timed_out:
                raise Failed(FailureKind.HUNG, f"silent during login for {clock.login_limit:.0f} s") from None
            problems.append("the server closed the connection")
        problems += [f"the server takes {', '.join(taken)}"] if taken else []
        reason = f"no key of {target.user} was accepted ({tried} tried"
        reason += f"; {'; '.join(dict.fromkeys(problems))})" if problems else ")"
        raise Failed(FailureKind.AUTH, reason, methods.own_remedy(taken))

    def _candidates(self, target: Target | Jump, problems: list[str]) -> Iterator[paramiko.PKey]:
        for identity in target.identities:
            key = self._key(identity)
            if isinstance(key, str):
                problems.append(key)
                continue
            if (better := ssh_keys.certified(key, target.certificates)) is not None:
                yield better
            yield key
        if target.agent:
            for held in self._agent_keys():
                if (better := ssh_keys.certified(held, target.certificates)) is not None:
                    yield better
                yield held

    def _key(self, identity: Identity) -> paramiko.PKey | str:
        """The parsed key, or why there is none; parsed once (an RSA key costs 0.1 s)."""
        with self._lock:
            if identity not in self._keys:
                self._keys[identity] = ssh_keys.load(identity)
            return self._keys[identity]

    def _agent_keys(self) -> Sequence[paramiko.PKey]:
        with self._lock:
            if self._agent is None:
                self._agent = ssh_keys.agent_keys()
            return self._agent

    def _forget(self, session: Session) -> None:
        with self._lock:
            self._open.pop(session, None)
        session.cut()


class _Relay:
    """The last of a chain of jump hosts, logged in once and shared by all the nodes behind it."""

    def __init__(self, jumps: tuple[Jump, ...]) -> None:
        self._jumps = jumps
        self._lock = threading.Lock()
        self._transport: paramiko.Transport | None = None
        self._failed: tuple[float, str, str] | None = None

    def channel(self, ssh: Ssh, target: Target, clock: Clock) -> paramiko.Channel:
        transport = self._ready(ssh, clock)
        try:
            return transport.open_channel(
                "direct-tcpip", (target.address, target.port), ("127.0.0.1", 0), timeout=clock.left()
            )
        except paramiko.ChannelException as error:
            kind = FailureKind.REFUSED if error.code == 2 else FailureKind.JUMP
            raise Failed(kind, f"{self._name} cannot open {target.address}:{target.port}: {error.text}") from error
        except (SSHException, EOFError) as error:
            raise Failed(FailureKind.JUMP, f"{self._name}: {ssh_keys.text(error)}") from error

    @property
    def _name(self) -> str:
        return f"jump host {self._jumps[-1].address}"

    def _ready(self, ssh: Ssh, clock: Clock) -> paramiko.Transport:
        if not self._lock.acquire(timeout=clock.login):
            raise Failed(FailureKind.JUMP, f"{self._name} did not log in in time")
        try:
            if self._transport is not None and self._transport.is_active():
                return self._transport
            if self._failed is not None and time.monotonic() - self._failed[0] < _RELAY_FAILURE_SECONDS:
                raise Failed(FailureKind.JUMP, *self._failed[1:])
            try:
                self._transport = self._connect(ssh, clock)
            except Failed as failed:
                kind, reason, remedy = failed.failure
                self._failed = (time.monotonic(), f"{self._name}: {kind}: {reason}", remedy)
                raise Failed(FailureKind.JUMP, *self._failed[1:]) from failed
            return self._transport
        finally:
            self._lock.release()

    def _connect(self, ssh: Ssh, clock: Clock) -> paramiko.Transport:
        transport: paramiko.Transport | None = None
        for jump in self._jumps:
            sock: socket.socket | paramiko.Channel
            if transport is None:
                sock = sockets.connect(jump.address, jump.port, clock)
            else:
                sock = transport.open_channel(
                    "direct-tcpip", (jump.address, jump.port), ("127.0.0.1", 0), timeout=clock.left()
                )
            transport = ssh.shared(sock, jump, clock)
        assert transport is not None  # noqa: S101 - a relay has at least one jump
        return transport


def _prefer(transport: paramiko.Transport, host_keys: Sequence[str]) -> None:
    """Cheap algorithms first; of the host key types those first that are known, so that a second key is no change."""
    options = transport.get_security_options()
    options.kex = _first(_KEX, options.kex)
    options.ciphers = _first(_CIPHERS, options.ciphers)
    known: list[str] = []
    for key in host_keys:
        kind = key.split()[0]
        known += _RSA if kind == "ssh-rsa" else (kind,)
    options.key_types = _first(known, options.key_types)


def _first(wanted: Sequence[str], offered: Sequence[str]) -> tuple[str, ...]:
    front = [name for name in wanted if name in offered]
    return (*front, *(name for name in offered if name not in front))


def _methods(session: Session, user: str) -> Generator[Callable[[], bool], None, Sequence[str]]:
    """How the server lets ``user`` in, asked by the method `none`; empty where it does not say."""
    answered = threading.Event()
    if session.auth_handler is None:
        session.auth_handler = AuthHandler(session)
    session.auth_handler.auth_none(user, answered)
    yield answered.is_set
    error = session.get_exception()
    if isinstance(error, paramiko.BadAuthenticationType):
        return [str(method) for method in error.allowed_types if method]
    return ()


def _silent(transport: Session, clock: Clock, ended: Ended) -> Failed:
    """Why the key exchange did not end."""
    error = transport.get_exception()
    cut = not ended.timed_out
    if not transport.remote_version:
        how = "closed the connection" if cut else f"said nothing for {clock.login_limit:.0f} s"
        return Failed(FailureKind.NO_BANNER, f"TCP opened, but no SSH banner came: it {how}")
    if isinstance(error, IncompatiblePeer):
        remedy = "--transport openssh offers what the system's ssh knows"
        return Failed(FailureKind.CLOSED, f"no algorithm in common: {ssh_keys.text(error)}", remedy)
    if cut:
        return Failed(FailureKind.CLOSED, f"during the key exchange: {ssh_keys.text(error)}")
    return Failed(FailureKind.HUNG, f"silent after its banner for {clock.login_limit:.0f} s")


def _feed(session: Session, script: str, clock: Clock) -> Steps:
    """Run ``sh -s``, write the script, read to the end, the caps or the deadline."""
    out = bytearray()
    err = bytearray()
    timed_out = False
    channel: paramiko.Channel | None = None
    try:
        channel = yield from open_session(session)
        execute(session, channel, "sh -s")
        yield from _write_script(channel, script)
        yield from _read(session.wire, channel, out, err, clock)
    except Ended as ended:
        timed_out = ended.timed_out and not (channel is not None and channel.eof_received)
        if channel is None:
            words = "opens no channel" if timed_out else "closed the connection"
            raise Failed(FailureKind.HUNG if timed_out else FailureKind.CLOSED, f"logged in, but it {words}") from None
    _take(channel, out, err)
    if len(out) > (most := limits.OUTPUT_BYTES_PER_NODE):
        return Failure(FailureKind.BAD_OUTPUT, f"more than {most} bytes came back", clock.spent)
    if timed_out and not out:
        reason = f"logged in, but the script gave nothing in {clock.patience.host_seconds:.0f} s"
        return Failure(FailureKind.HUNG, reason, clock.spent)
    status = channel.exit_status if channel.status_event.is_set() and channel.exit_status >= 0 else None
    if status is None and not out:
        return Failure(FailureKind.CLOSED, "logged in, but the connection ended without any output", clock.spent)
    return Outcome(bytes(out), bytes(err), status, clock.spent)


def _write_script(channel: paramiko.Channel, script: str) -> Steps:
    data = script.encode()
    while data and not channel.closed:
        yield lambda: channel.closed or channel.out_window_size > 0
        if not channel.closed:
            data = data[channel.send(data) :]
    channel.shutdown_write()


def _read(wire: Wire, channel: paramiko.Channel, out: bytearray, err: bytearray, clock: Clock) -> Steps:
    """Until the output has ended. What has piled up is taken, or the window would close."""

    def moved() -> bool:
        piled = max(len(channel.in_buffer), len(channel.in_stderr_buffer))
        return bool(channel.closed or channel.eof_received) or piled > _PILED_BYTES

    while not channel.closed and len(out) <= limits.OUTPUT_BYTES_PER_NODE:
        yield moved
        _take(channel, out, err)
        if channel.eof_received:
            wire.until = min(clock.at(clock.patience.host_seconds), time.monotonic() + _STATUS_SECONDS)
            yield lambda: channel.closed or channel.status_event.is_set()
            return


def _take(channel: paramiko.Channel, out: bytearray, err: bytearray) -> None:
    """What has come, without waiting; of errors no more than a piece is kept."""
    while len(channel.in_buffer):
        out += channel.recv(_READ_BYTES)
    while len(channel.in_stderr_buffer):
        piece = channel.recv_stderr(_READ_BYTES)
        if len(err) < _READ_BYTES:
            err += piece
