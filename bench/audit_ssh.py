"""The same probe read from many hosts over real SSH: our sweep, an OpenSSH pool, clush, Ansible's raw module.

One sshd in a network namespace of its own answers on all of 127/8, so every host is an address of its own, and each
has a line in known_hosts. The hosts' own CPU (their sshd and the script) is spent on this machine too and bounds the
wall time; it is not counted in ``cpu``, which is the client's with start-up, parsing and its child processes.
Needs root (a network namespace), openssh-server and openssh-client.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import processes
from bench.rows import Row
from bringup import probe
from lockstep.base import errors
from pinsets import components

__all__ = ["rows"]

CASES = (100, 500)
QUICK = (50,)
POOL = 50
"""Connections at once, for every way."""
PEER_LIMIT = {"Ansible": 100}
"""Ansible takes 80–100 ms a host; more hosts say nothing new."""


@dataclass(frozen=True, slots=True)
class _Site:
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


def rows(quick: bool = False) -> Iterator[Row]:
    """Per number of hosts: cpu, wall and memory against each peer."""
    cases = QUICK if quick else CASES
    with _site(max(cases)) as site:
        for count in cases:
            hosts = _addresses(count)
            ours = _measured(site, "lockstep", _ours(site, hosts), hosts)
            for name, way in _PEERS.items():
                if count > PEER_LIMIT.get(name, count):
                    continue
                command = way(site, hosts)
                peer = _measured(site, name, command, hosts) if command is not None else None
                if peer is None:
                    continue
                yield Row(
                    str(count),
                    "cpu",
                    "ms/host",
                    ours.cpu_seconds / count * 1000,
                    peer.cpu_seconds / count * 1000,
                    name,
                )
                yield Row(str(count), "wall", "s", ours.wall_seconds, peer.wall_seconds, name)
                yield Row(str(count), "rss", "MB", ours.rss_mb, peer.rss_mb, name)


def _addresses(count: int) -> list[str]:
    return [f"127.1.{index // 250}.{index % 250 + 1}" for index in range(count)]


def _measured(site: _Site, name: str, command: Sequence[str], hosts: Sequence[str]) -> processes.Measured:
    """Run it and count the answers by the script's own last line; one missing is an error, not a figure."""
    out = site.folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    done = processes.measure([*site.enter, *command], allowed=(0, 1))
    text = done.output + b"".join(path.read_bytes() for path in out.iterdir())
    answers = text.count(b'{"done":')
    if answers != len(hosts):
        raise errors.EngineError(f"{name} brought {answers} answers of {len(hosts)}")
    return done


def _ours(site: _Site, hosts: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "bench.audit_ssh_client", str(site.folder), *hosts]


def _openssh(site: _Site, hosts: Sequence[str]) -> list[str] | None:
    if shutil.which("ssh") is None:
        return None
    words = " ".join(site.options)
    each = f'exec ssh {words} root@"$1" sh -s <{site.script} >{site.folder}/out/"$1"'
    listed = site.folder / "hosts"
    listed.write_text("".join(f"{host}\n" for host in hosts))
    return ["xargs", "-a", str(listed), "-P", str(POOL), "-n", "1", "sh", "-c", each, "sh"]


def _clush(site: _Site, hosts: Sequence[str]) -> list[str] | None:
    program = Path(sys.executable).with_name("clush")
    if not program.exists() or shutil.which("ssh") is None:
        return None
    fed = f"cat {site.script} | {program} -f {POOL} -l root -N -o '{' '.join(site.options)}' -w {','.join(hosts)} sh -s"
    return ["sh", "-c", fed]


def _ansible(site: _Site, hosts: Sequence[str]) -> list[str] | None:
    program = Path(sys.executable).with_name("ansible")
    if not program.exists():
        return None
    (site.folder / "inventory").write_text("".join(f"{host}\n" for host in hosts))
    settings = {
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=no " + " ".join(site.options),
        "ANSIBLE_REMOTE_USER": "root",
        "ANSIBLE_INVENTORY": str(site.folder / "inventory"),
        "ANSIBLE_LOCALHOST_WARNING": "False",
    }
    words = [f"{key}={value}" for key, value in settings.items()]
    # The raw module takes one command line: the script travels in it, and its lines come back with the answer.
    quoted = "sh -c " + _quote(site.script.read_text())
    return ["env", *words, str(program), "all", "-m", "raw", "-f", str(POOL), "-a", quoted]


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'").replace("{{", "{ {").replace("{%", "{ %").replace("{#", "{ #") + "'"


_PEERS: dict[str, Callable[[_Site, Sequence[str]], list[str] | None]] = {
    "OpenSSH": _openssh,
    "ClusterShell": _clush,
    "Ansible": _ansible,
}


@contextlib.contextmanager
def _site(count: int) -> Iterator[_Site]:
    """An sshd of our own in a network namespace that holds nothing else; ended with this process."""
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    if os.geteuid() != 0 or not Path(sshd).exists():
        raise errors.NotMeasuredError("this benchmark needs root and openssh-server")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key in ("user", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        public = " ".join((folder / "host.pub").read_text().split()[:2])
        (folder / "known_hosts").write_text("".join(f"{host} {public}\n" for host in _addresses(count)))
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
        site = _Site(folder, ("nsenter", f"--net=/proc/{server.pid}/ns/net", "--"), script)
        try:
            _wait(server, site)
            yield site
        finally:
            server.terminate()
            server.wait()


def _passwd(home: Path) -> str:
    lines = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    changed = [[*line[:5], str(home), "/bin/sh"] if line[0] == "root" else line for line in lines]
    return "".join(":".join(line) + "\n" for line in changed)


def _wait(server: subprocess.Popen[bytes], site: _Site) -> None:
    probe_it = "import socket; socket.create_connection(('127.1.0.1', 22), 1).close()"
    for _ in range(100):
        if server.poll() is not None:
            raise errors.EngineError("sshd of the benchmark ended at once")
        if subprocess.run([*site.enter, sys.executable, "-c", probe_it], capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    raise errors.EngineError("sshd of the benchmark does not answer")
