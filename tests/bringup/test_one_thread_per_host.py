"""The wire between paramiko and its socket: sent together, received in large pieces, ended at a deadline."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bringup.transport.base import Outcome, Patience
from bringup.transport.ssh import Ssh
from bringup.transport.talk import Wire
from lockstep.base.names import NodeName
from tests.bringup.servers import Sshd


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends on which each write stays by itself."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def test_what_is_sent_goes_out_together_when_something_must_be_waited_for(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    wire = Wire(ours, time.monotonic() + 60)
    assert [wire.send(b"one"), wire.send(b"two")] == [3, 3]
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(100)
    theirs.send(b"answer")
    assert wire.recv(2) == b"an"
    assert theirs.recv(100) == b"onetwo"
    assert wire.recv(100) == b"swer", "the rest of a piece needs no look at the socket"


def test_the_conversation_goes_on_only_when_all_that_came_was_read(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    wire = Wire(ours, time.monotonic() + 60)
    looks: list[int] = []
    wire.before_waiting = lambda: looks.append(1)
    theirs.send(b"four")
    for _ in range(4):
        wire.recv(1)
    assert len(looks) == 1


def test_a_wait_ends_at_the_deadline_and_says_so(ends: tuple[socket.socket, socket.socket]) -> None:
    wire = Wire(ends[0], time.monotonic() + 0.05)
    with pytest.raises(EOFError):
        wire.recv(1)
    assert wire.timed_out


def test_a_shared_wire_holds_nothing_back(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    wire = Wire(ours, None, shared=True)
    wire.send(b"now")
    assert theirs.recv(100) == b"now"


def test_a_wire_that_is_cut_wakes_who_reads_it() -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(ours, time.monotonic() + 600)

    def read() -> None:
        with contextlib.suppress(OSError):  # cut before it began
            wire.recv(1)

    reader = threading.Thread(target=read)
    with theirs:
        reader.start()
        wire.cut()
        reader.join(60)
    assert not reader.is_alive()


def test_a_host_is_read_without_a_thread_of_its_own(sshd: Sshd) -> None:
    """Besides the caller's; a jump host, which many share, has one."""
    before = threading.active_count()
    most = [0]
    ssh = Ssh()
    plain = Wire.recv

    def counting(wire: Wire, size: int) -> bytes:
        most[0] = max(most[0], threading.active_count())
        return plain(wire, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wire, "recv", counting)
        assert isinstance(ssh.run(sshd.target(), "echo\n", Patience()), Outcome)
    assert most[0] == before


def test_a_host_that_is_cut_hands_over_what_has_come_and_others_go_on(sshd: Sshd, tmp_path: Path) -> None:
    ssh = Ssh()
    answers: dict[str, object] = {}
    go = tmp_path / "go"
    scripts = {
        "cut": f"echo first; touch {tmp_path}/cut; sleep 60\n",
        "other": f"touch {tmp_path}/other; until [ -e {go} ]; do sleep 0.1; done; echo all\n",
    }

    def read(name: str) -> None:
        answers[name] = ssh.run(sshd.target(name), scripts[name], Patience())

    threads = [threading.Thread(target=read, args=(name,)) for name in scripts]
    for thread in threads:
        thread.start()
    while not all((tmp_path / name).exists() for name in scripts):
        time.sleep(0.05)
    time.sleep(0.3)  # the line it said is under way
    ssh.cut(NodeName("cut"))
    threads[0].join(30)
    go.touch()
    threads[1].join(30)
    first, other = answers["cut"], answers["other"]
    assert isinstance(first, Outcome)
    assert isinstance(other, Outcome)
    assert (first.stdout, first.status) == (b"first\n", None)
    assert (other.stdout, other.status) == (b"all\n", 0)
