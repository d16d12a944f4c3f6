"""Hosts that never answer properly, eight sorts, for `audit_ssh`: ``FOLDER EACH``; writes FOLDER/bad.json when ready.

No banner; a banner and then silence; one line a second; accepts and closes; a closed port; a black hole (a listener
whose queue is full, so that the kernel drops further connects); a hung shell; a host that answers after eight seconds.
The last two are real sshd processes; they end with this one.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

ADDRESS = "127.2.0.1"
SLOW_SECONDS = 8


def _serve(behave: Callable[[socket.socket], None]) -> int:
    server = socket.create_server((ADDRESS, 0), backlog=256)

    def one(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            behave(sock)

    def accept() -> None:
        while True:
            sock, _ = server.accept()
            threading.Thread(target=one, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(server.getsockname()[1])


def _banner(sock: socket.socket) -> None:
    sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    time.sleep(3600)


def _trickle(sock: socket.socket) -> None:
    while True:
        sock.sendall(b"please wait\r\n")
        time.sleep(1)


def _black_hole(kept: list[socket.socket]) -> int:
    server = socket.socket()
    server.bind((ADDRESS, 0))
    server.listen(0)
    kept.append(server)
    for _ in range(4):
        client = socket.socket()
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.connect(server.getsockname())
        kept.append(client)
    return int(server.getsockname()[1])


def _free() -> int:
    with socket.socket() as sock:
        sock.bind((ADDRESS, 0))
        return int(sock.getsockname()[1])


def _sshd(folder: Path, name: str, command: str) -> int:
    port = _free()
    config = folder / f"sshd_config.{name}"
    text = (folder / "sshd_config").read_text().replace("Port 22\n", f"ListenAddress {ADDRESS}:{port}\n")
    config.write_text(f"{text}ForceCommand {command}\n")
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    subprocess.Popen(["setpriv", "--pdeathsig", "TERM", program, "-D", "-e", "-f", str(config)])
    return port


def main() -> int:
    """Serves until it is told to end."""
    folder, each = Path(sys.argv[1]), int(sys.argv[2])
    kept: list[socket.socket] = []
    ports = [
        _serve(lambda _sock: time.sleep(3600)),
        _serve(_banner),
        _serve(_trickle),
        _serve(lambda sock: sock.close()),
        _free(),
        _black_hole(kept),
        _sshd(folder, "hung", "sleep 3600"),
        _sshd(folder, "slow", f"sleep {SLOW_SECONDS}; exec sh -s"),
    ]
    (folder / "bad.json.new").write_text(json.dumps([f"{ADDRESS}:{port}" for port in ports for _ in range(each)]))
    time.sleep(0.5)
    (folder / "bad.json.new").rename(folder / "bad.json")
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
