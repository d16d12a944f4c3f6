"""An audit that is ended from outside while it waits for a host: by a person, or by a service manager."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bringup import servers

SHM = Path("/dev/shm")


def _wait(what: str, condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def _folders(port: int) -> list[Path]:
    """Private folders of the system's ssh for a host on this port."""
    return [path.parent for path in SHM.glob("lockstep-ssh.*/*/config") if f"Port {port}\n" in path.read_text()]


def _processes(port: int) -> list[str]:
    """Programs that have a folder of that kind in their arguments."""
    found = []
    for folder in _folders(port):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            if str(folder).encode() in words:
                found.append(path.parent.name)
    return found


@pytest.mark.parametrize(
    ("number", "code", "transport", "watch"),
    [
        (signal.SIGTERM, -signal.SIGTERM, "paramiko", True),
        (signal.SIGTERM, -signal.SIGTERM, "openssh", True),
        (signal.SIGINT, 130, "paramiko", True),
        (signal.SIGINT, 130, "openssh", False),
        (signal.SIGTERM, -signal.SIGTERM, "paramiko", False),
    ],
)
def test_it_ends_at_once_leaves_no_process_and_shows_a_cut_reading_as_one_or_not_at_all(
    bad_hosts: servers.BadHosts, tmp_path: Path, number: signal.Signals, code: int, transport: str, watch: bool
) -> None:
    address, port = bad_hosts.no_banner
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(f"Host silent\n  HostName {address}\n  Port {port}\n")
    words = ["--hosts", "silent", "--transport", transport, "--timeout", "600", "--format", "json"]
    words += ["--output", str(tmp_path / "report"), *(["--watch", "1"] if watch else [])]
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("lockstep")), "audit", *words],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _wait("it connects", lambda: _connected(process.pid, port))
        ours = _processes(port)
        assert bool(ours) == (transport == "openssh")
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
        assert process.returncode == code, said
        assert b"Traceback" not in said
    finally:
        process.kill()
        process.wait()
    assert _folders(port) == []
    _wait("its programs are gone", lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in ours))
    if watch:
        assert {path.name for path in tmp_path.iterdir()} == {".ssh"}, "what a round before wrote would have stayed"
    else:
        assert json.loads((tmp_path / "report").read_text())["interrupted"] is True


def _connected(pid: int, port: int) -> bool:
    """Whether somebody is connected to the port; the audit is past its start then."""
    wanted = f":{port:04X}"
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[2].endswith(wanted) and line.split()[3] == "01" for line in lines)
