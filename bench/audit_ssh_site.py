"""Where `audit_ssh` runs: one real sshd in a network namespace of its own, which is every address of 127/8."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bringup import probe
from lockstep.base import errors
from pinsets import components

__all__ = ["Site", "site"]


@dataclass(frozen=True, slots=True)
class Site:
    """A running sshd and the files that lead to it."""

    folder: Path
    enter: tuple[str, ...]
    """Words in front of a command that must reach the hosts."""
    script: Path

    @property
    def options(self) -> list[str]:
        """OpenSSH options: the cheapest kex both ends have, host keys verified."""
        values = {
            "UserKnownHostsFile": self.folder / "known_hosts",
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "IdentityFile": self.folder / "user",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "KexAlgorithms": "curve25519-sha256",
            "Ciphers": "aes128-gcm@openssh.com",
            "LogLevel": "ERROR",
        }
        return [f"-o{key}={value}" for key, value in values.items()]


@contextlib.contextmanager
def site(hosts: Sequence[str]) -> Iterator[Site]:
    """An sshd of our own in a network namespace that holds nothing else; ended with this process."""
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    if os.geteuid() != 0 or not Path(sshd).exists():
        raise errors.NotMeasuredError("this benchmark needs root and openssh-server")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key in ("user", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        public = " ".join((folder / "host.pub").read_text().split()[:2])
        (folder / "known_hosts").write_text("".join(f"{host} {public}\n" for host in hosts))
        (folder / "authorized").write_text((folder / "user.pub").read_text())
        lines = ["Port 22", f"HostKey {folder}/host", f"AuthorizedKeysFile {folder}/authorized", "PidFile none"]
        lines += ["UsePAM no", "StrictModes no", "PasswordAuthentication no", "MaxStartups 2000", "LogLevel ERROR"]
        (folder / "sshd_config").write_text("\n".join([*lines, ""]))
        script = folder / "script"
        script.write_text(probe.script(components.load()))
        Path("/run/sshd").mkdir(exist_ok=True)
        # A login shell that reads no startup files: what root's own shell loads is no host's work.
        (folder / "passwd").write_text(_passwd(folder))
        serve = f"exec {sshd} -D -e -f {folder}/sshd_config"
        inside = f"mount --bind {folder}/passwd /etc/passwd && ip link set lo up && {serve}"
        server = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", "unshare", "--net", "--mount", "sh", "-c", inside])
        made = Site(folder, ("nsenter", f"--net=/proc/{server.pid}/ns/net", "--"), script)
        try:
            _wait(server, made)
            yield made
        finally:
            server.terminate()
            server.wait()


def _passwd(home: Path) -> str:
    lines = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    changed = [[*line[:5], str(home), "/bin/sh"] if line[0] == "root" else line for line in lines]
    return "".join(":".join(line) + "\n" for line in changed)


def _wait(server: subprocess.Popen[bytes], at: Site) -> None:
    probe_it = "import socket; socket.create_connection(('127.1.0.1', 22), 1).close()"
    for _ in range(100):
        if server.poll() is not None:
            raise errors.EngineError("sshd of the benchmark ended at once")
        if subprocess.run([*at.enter, sys.executable, "-c", probe_it], capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    raise errors.EngineError("sshd of the benchmark does not answer")
