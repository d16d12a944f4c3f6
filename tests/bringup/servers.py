"""Servers for tests: sshd with its own keys on loopback, and the sorts of host that never answer properly."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bringup.transport.base import Identity, Jump, Target
from lockstep.base.names import NodeName

BIND = "127.90.98.1"
"""Tests of this folder stay on 127.90.98.0/24."""


@dataclass(frozen=True)
class Keys:
    """Paths of private keys; the public one lies beside each."""

    user: Path
    host: Path
    other: Path

    def public(self, name: str) -> str:
        """``TYPE BASE64``."""
        return " ".join(getattr(self, name).with_suffix(".pub").read_text().split()[:2])


@dataclass(frozen=True)
class Sshd:
    """A running server."""

    port: int
    keys: Keys
    process: subprocess.Popen[bytes]
    log: Path

    def target(self, name: str = "gpu-001", address: str = BIND, **changes: object) -> Target:
        """How to reach it; ``changes`` spoil what a test wants spoilt."""
        values: dict[str, object] = {
            "node": NodeName(name),
            "address": address,
            "port": self.port,
            "user": getpass.getuser(),
            "identities": (Identity(str(self.keys.user)),),
            "host_keys": (self.keys.public("host"),),
            "agent": False,
        }
        return Target(**(values | changes))  # type: ignore[arg-type]

    def jump(self, **changes: object) -> Jump:
        """The same server as a jump host."""
        target = self.target()
        values: dict[str, object] = {
            "address": target.address,
            "port": target.port,
            "user": target.user,
            "identities": target.identities,
            "agent": False,
            "host_keys": target.host_keys,
        }
        return Jump(**(values | changes))  # type: ignore[arg-type]


def make_keys(folder: Path, *kind: str) -> Keys:
    """Fresh keys, of one ``kind`` as ssh-keygen's -t names it (and further words of its own); ed25519 without."""
    program = shutil.which("ssh-keygen")
    if program is None:
        pytest.skip("ssh-keygen is not installed (openssh-client)")
    made = Keys(folder / "user", folder / "host", folder / "other")
    for path in (made.user, made.host, made.other):
        subprocess.run([program, "-q", "-t", *(kind or ("ed25519",)), "-N", "", "-f", str(path)], check=True)
    return made


def free_port(address: str = BIND) -> int:
    """A port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind((address, 0))
        return int(sock.getsockname()[1])


DIES_WITH_US = ("setpriv", "--pdeathsig", "TERM")
"""In front of a command: a killed test run leaves no server behind."""


@contextlib.contextmanager
def sshd(keys: Keys, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[Sshd]:
    """An sshd of the calling user on 127.90.98.1 and .2.

    ``options`` are further lines of its configuration, ``environment`` is added to its own.
    """
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    if not Path(program).exists():
        pytest.skip("sshd is not installed (openssh-server)")
    Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    authorized = folder / "authorized_keys"
    authorized.write_text(keys.user.with_suffix(".pub").read_text())
    authorized.chmod(0o600)
    config = folder / "sshd_config"
    lines = [
        *(f"ListenAddress 127.90.98.{number}:{port}" for number in (1, 2)),
        f"HostKey {keys.host}",
        f"AuthorizedKeysFile {authorized}",
        "PidFile none",
        "UsePAM no",
        "StrictModes no",
        "PasswordAuthentication no",
        "MaxStartups 1000",
        "PermitRootLogin prohibit-password",
        "LogLevel VERBOSE",
        *options,
    ]
    config.write_text("\n".join(lines) + "\n")
    log = folder / "log"
    process = subprocess.Popen(
        [*DIES_WITH_US, program, "-D", "-e", "-f", str(config)],
        env={**os.environ, **(environment or {})},
        stderr=log.open("wb"),
    )
    try:
        _wait(process, port, log)
        yield Sshd(port, keys, process, log)
    finally:
        process.terminate()
        process.wait()


def _clean_login(folder: Path) -> list[str]:
    """Words in front of sshd: the login shell is /bin/sh with an empty home, whatever the user's startup files do.

    Needs root (a mount namespace with a passwd file of its own); without it the user's own shell serves.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return []
    home = folder / "home"
    home.mkdir()
    fields = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    lines = [[*entry[:5], str(home), "/bin/sh"] if entry[0] == getpass.getuser() else entry for entry in fields]
    passwd = folder / "passwd"
    passwd.write_text("".join(":".join(line) + "\n" for line in lines))
    return ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/passwd && exec "$@"', str(passwd)]


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(200):
        if process.poll() is not None:
            raise RuntimeError(f"sshd ended: {log.read_text()}")
        with contextlib.suppress(OSError), socket.create_connection((BIND, port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError("sshd does not answer")


class BadHosts:
    """Addresses of hosts that misbehave, by sort."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.no_banner = self._serve(lambda sock: self._stop.wait())
        self.banner_then_silence = self._serve(self._banner)
        self.line_per_second = self._serve(self._lines)
        self.accepts_and_closes = self._serve(lambda sock: sock.close())
        self.closed_port = ("127.90.98.99", free_port("127.90.98.99"))
        self.black_hole = self._full()

    def _serve(self, behave: Callable[[socket.socket], object]) -> tuple[str, int]:
        server = socket.create_server((BIND, 0), backlog=64)
        self._sockets.append(server)

        def one(sock: socket.socket) -> None:
            with contextlib.suppress(OSError), sock:
                behave(sock)

        def accept() -> None:
            while not self._stop.is_set():
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                thread = threading.Thread(target=one, args=(sock,), daemon=True)
                thread.start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        self._threads.append(thread)
        return server.getsockname()  # type: ignore[no-any-return]

    def _banner(self, sock: socket.socket) -> None:
        sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        self._stop.wait()

    def _lines(self, sock: socket.socket) -> None:
        while not self._stop.wait(1):
            sock.sendall(b"please wait\r\n")

    def _full(self) -> tuple[str, int]:
        """A listener whose queue is full: the kernel drops further SYNs, as a router's black hole does."""
        server = socket.socket()
        server.bind((BIND, 0))
        server.listen(0)
        self._sockets.append(server)
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(server.getsockname())
            self._sockets.append(client)
        return server.getsockname()  # type: ignore[no-any-return]

    def close(self) -> None:
        """End all of it."""
        self._stop.set()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


@contextlib.contextmanager
def bad_hosts() -> Iterator[BadHosts]:
    """The six sorts that need no sshd."""
    hosts = BadHosts()
    try:
        yield hosts
    finally:
        hosts.close()


@contextlib.contextmanager
def agent(key: Path) -> Iterator[str]:
    """A running ssh-agent that holds ``key``; yields its socket."""
    path = f"{key}.agent"
    process = subprocess.Popen([*DIES_WITH_US, "ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if Path(path).exists():
                break
            time.sleep(0.05)
        subprocess.run(["ssh-add", "-q", str(key)], env={"SSH_AUTH_SOCK": path}, check=True, stderr=subprocess.DEVNULL)
        yield path
    finally:
        process.terminate()
        process.wait()
        Path(path).unlink(missing_ok=True)
