"""A Kerberos realm of a test's own: a real KDC on loopback, principals, keytabs and tickets, all in one folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bringup import servers

REALM = "LOCKSTEP.TEST"
ADDRESS = "127.90.98.3"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")


@dataclass(frozen=True)
class Realm:
    """A running realm; `environment` leads programs to it and to nothing else."""

    folder: Path
    environment: Mapping[str, str]

    def principal(self, name: str) -> Path:
        """A new principal with a random key; yields its keytab."""
        keytab = self.folder / f"{name.replace('/', '.')}.keytab"
        for query in (f"addprinc -randkey {name}@{REALM}", f"ktadd -k {keytab} -norandkey {name}@{REALM}"):
            self._run("kadmin.local", "-r", REALM, "-q", query)
        assert keytab.is_file()
        return keytab

    def ticket(self, name: str, keytab: Path, cache: Path) -> None:
        """A ticket for ``name`` in the file ``cache``."""
        self._run("kinit", "-c", f"FILE:{cache}", "-k", "-t", str(keytab), f"{name}@{REALM}")

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run([_found(program), *words], env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"


def _found(program: str) -> str:
    path = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if path is None:
        pytest.skip(f"{program} is not installed (Debian's krb5-kdc, krb5-admin-server and krb5-user)")
    return path


@contextlib.contextmanager
def realm(folder: Path) -> Iterator[Realm]:
    """A KDC on a high port, with a database and files that end with the test."""
    programs = {name: _found(name) for name in PROGRAMS}
    port = servers.free_port(ADDRESS)
    (folder / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
        # Loopback addresses have no names to be found, and no name server is to be asked for them.
        " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = {ADDRESS}:{port}\n }}\n[domain_realm]\n .{REALM.lower()} = {REALM}\n"
    )
    (folder / "kdc.conf").write_text(
        f"[kdcdefaults]\n kdc_listen = {ADDRESS}:{port}\n kdc_tcp_listen = {ADDRESS}:{port}\n"
        f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
        f"  acl_file = {folder}/acl\n  max_life = 1h\n }}\n"
        f"[logging]\n kdc = FILE:{folder}/kdc.log\n admin_server = FILE:{folder}/admin.log\n"
        f" default = FILE:{folder}/default.log\n"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "KRB5_CONFIG": str(folder / "krb5.conf"),
        "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        "KRB5RCACHEDIR": str(folder),
        "LC_ALL": "C",
    }
    made = Realm(folder, environment)
    made._run("kdb5_util", "create", "-r", REALM, "-s", "-P", os.urandom(16).hex())
    log = folder / "out"
    process = subprocess.Popen(
        [*servers.DIES_WITH_US, programs["krb5kdc"], "-n", "-r", REALM, "-P", str(folder / "pid")],
        env=environment,
        stdout=log.open("wb"),
        stderr=subprocess.STDOUT,
    )
    try:
        _wait(process, port, log)
        yield made
    finally:
        process.terminate()
        process.wait(30)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(200):
        if process.poll() is not None:
            raise RuntimeError(f"krb5kdc ended: {log.read_text()}")
        with contextlib.suppress(OSError), socket.create_connection((ADDRESS, port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError("krb5kdc does not answer")
