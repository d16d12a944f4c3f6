"""A conversation over paramiko in one thread: what is said next is decided inside the loop that reads.

paramiko reads in a thread of its own, and whoever waits for it looks ten times a second. On a busy machine those looks
and hand-overs cost more than all of the cryptography (client CPU per host 10 → 5 ms), and a sweep has a hundred of them
at once. Here a conversation is a generator: it yields a condition whenever it has to wait, and `Wire`, which paramiko
takes for its socket, goes on with it when everything received has been dealt with and before it waits for more.

Of paramiko's own names this uses those that its documentation leaves out in `open_session` and `execute` alone.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import paramiko
from paramiko import common
from paramiko.packet import Packetizer
from paramiko.ssh_exception import SSHException

__all__ = ["Ended", "Session", "Steps", "Talk", "Wire", "execute", "open_session"]

Steps = Generator[Callable[[], bool], None, Any]
"""A conversation: yields what it waits for, returns its result. `Ended` is thrown in when the connection is over."""

_RECEIVED_BYTES = 64 * 1024
_SENT_BYTES = 64 * 1024
_SLACK_SECONDS = 0.25
"""By how much a wait may outlast its deadline: setting the time-out anew for each packet costs a system call."""
_LOOK_SECONDS = 2.0
"""How often a connection that others use looks whether it was closed."""


class Ended(Exception):  # noqa: N818 - what happened, thrown into the conversation
    """The connection is over; ``timed_out``: because its time was."""

    def __init__(self, timed_out: bool) -> None:
        super().__init__("out of time" if timed_out else "connection closed")
        self.timed_out = timed_out


class Wire:
    """Between paramiko and a socket: collects what is sent until something must be waited for, reads in large pieces.

    ``until`` is the monotonic time at which waiting ends, None: no end. ``shared``: other threads send, too, so that
    nothing is held back.
    """

    def __init__(self, sock: socket.socket | paramiko.Channel, until: float | None, *, shared: bool = False) -> None:
        self.until = until
        self.shared = shared
        self.timed_out = False
        self.before_waiting: Callable[[], None] | None = None
        self._sock = sock
        self._given = -1.0
        self._received = b""
        self._unsent = bytearray()
        self._closed = False  # paramiko looks at it

    def settimeout(self, seconds: float | None) -> None:
        """paramiko's wish; the time-out is ours to choose."""

    def recv(self, size: int) -> bytes:
        """1 to ``size`` bytes. Raises EOFError at the deadline, TimeoutError where there is none and nothing came."""
        if not self._received:
            if self.before_waiting is not None:
                self.before_waiting()
            self._flush()
            self._wait_at_most()
            try:
                self._received = self._sock.recv(_RECEIVED_BYTES)
            except TimeoutError:
                if self.until is None:
                    raise
                self._late()
        given, self._received = self._received[:size], self._received[size:]
        return given

    def send(self, data: bytes) -> int:
        """Takes all of it; sends when it is time to wait for an answer, or when much has piled up."""
        if self.shared:
            return self._sock.send(data)
        self._unsent += data
        if len(self._unsent) > _SENT_BYTES:
            self._flush()
        return len(data)

    def cut(self) -> None:
        """Close now; a wait in another thread ends."""
        self._closed = True
        with contextlib.suppress(OSError, EOFError):
            if isinstance(self._sock, socket.socket):
                self._sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError, EOFError, SSHException):
            self._sock.close()

    def close(self) -> None:
        """As `cut`."""
        self.cut()

    def _flush(self) -> None:
        while self._unsent:
            self._wait_at_most()
            try:
                sent = self._sock.send(bytes(self._unsent))
            except TimeoutError:
                if self.until is not None:
                    self._late()
                if self._closed:
                    raise EOFError from None
                continue
            if sent <= 0:
                raise EOFError
            del self._unsent[:sent]

    def _wait_at_most(self) -> None:
        left = _LOOK_SECONDS if self.until is None else self.until - time.monotonic()
        if left <= 0:
            self._late()
        if not left <= self._given <= left + _SLACK_SECONDS:
            self._sock.settimeout(left)
            self._given = left

    def _late(self) -> None:
        self.timed_out = True
        raise EOFError("out of time")


class Talk:
    """One conversation and where it stands."""

    def __init__(self, wire: Wire, steps: Callable[[Session], Steps]) -> None:
        self.over = threading.Event()
        """Set when it has a result, also when the connection goes on (a jump host)."""
        self._wire = wire
        self._make = steps
        self._steps: Steps | None = None
        self._ready: Callable[[], bool] = bool
        self._result: Any = None
        self._error: BaseException | None = None

    def begin(self, session: Session) -> None:
        """Up to its first wait."""
        self._steps = self._make(session)
        self._ready = next(self._steps)
        self._wire.before_waiting = self._go_on

    def end(self) -> None:
        """The connection is over: the conversation says what that means."""
        self._wire.before_waiting = None
        if self._steps is not None and not self.over.is_set():
            self._advance(lambda steps: steps.throw(Ended(self._wire.timed_out)))
            if not self.over.is_set():
                self._error = RuntimeError("a conversation went on after its connection")
                self.over.set()

    def result(self) -> Any:
        """What it returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result

    def _go_on(self) -> None:
        while not self.over.is_set() and self._ready():
            self._advance(next)
        if self.over.is_set():
            self._wire.before_waiting = None
            if self._error is not None or not self._wire.shared:
                raise EOFError

    def _advance(self, how: Callable[[Steps], Callable[[], bool]]) -> None:
        assert self._steps is not None  # noqa: S101 - begun before it is driven
        try:
            self._ready = how(self._steps)
        except StopIteration as stop:
            self._result = stop.value
            self.over.set()
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._error = error
            self.over.set()


class _Packetizer(Packetizer):
    """Without a thread that times the handshake: the wire does."""

    def start_handshake(self, timeout: float) -> None:
        """Nothing to start."""


class Session(paramiko.Transport):
    """paramiko's transport, read by the thread that starts it, or by one of its own where the wire is shared."""

    def __init__(self, wire: Wire, steps: Callable[[Session], Steps]) -> None:
        super().__init__(wire, packetizer_class=_Packetizer)  # type: ignore[arg-type]
        self.wire = wire
        self.talk = Talk(wire, steps)
        self.negotiated = threading.Event()
        # The first line of a banner may take as long as all of them: the wire counts.
        self.banner_timeout = 3600.0

    def converse(self) -> None:
        """Until the conversation has a result, which `Talk.result` gives."""
        self.talk.begin(self)
        self.start_client(event=self.negotiated)
        self.talk.over.wait()

    def start(self) -> None:
        """Called by `start_client`."""
        if self.wire.shared:
            super().start()
        else:
            self.run()

    def run(self) -> None:
        """paramiko's loop; the conversation takes place in it."""
        try:
            super().run()
        finally:
            self.talk.end()

    def cut(self) -> None:
        """Close now: the socket first, so that whoever reads it wakes."""
        self.wire.cut()
        self.close()

    def _log(self, level: int, msg: object, *args: object) -> None:
        """Nobody reads it: the reason of a dead host is in its failure."""


def open_session(session: Session) -> Generator[Callable[[], bool], None, paramiko.Channel]:
    """A channel for one command, as `Transport.open_session` makes it, without its looks ten times a second."""
    inner: Any = session
    with inner.lock:
        number = inner._next_channel()
        channel: Any = paramiko.Channel(number)
        inner._channels.put(number, channel)
        inner.channel_events[number] = opened = threading.Event()
        inner.channels_seen[number] = True
        channel._set_transport(session)
        channel._set_window(inner.default_window_size, inner.default_max_packet_size)
    message = paramiko.Message()
    message.add_byte(common.cMSG_CHANNEL_OPEN)
    message.add_string("session")
    message.add_int(number)
    message.add_int(inner.default_window_size)
    message.add_int(inner.default_max_packet_size)
    inner._send_user_message(message)
    yield opened.is_set
    if inner._channels.get(number) is None:
        raise session.get_exception() or SSHException("the server opens no channel")
    opened_channel: paramiko.Channel = channel
    return opened_channel


def execute(session: Any, channel: paramiko.Channel, command: str) -> None:
    """As `Channel.exec_command`, not waiting for the answer: a refusal closes the channel."""
    message = paramiko.Message()
    message.add_byte(common.cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string("exec")
    message.add_boolean(True)
    message.add_string(command)
    session._send_user_message(message)
