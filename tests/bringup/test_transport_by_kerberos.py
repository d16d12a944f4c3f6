"""A node that takes no keys but Kerberos tickets, behind a bastion: a real KDC, two real sshd, the audit as a program.

The system's ssh opens it; our own client says by name that it does not. The realm, its database and every keytab are of
the test's own; nothing of the machine's Kerberos is read.
"""

from __future__ import annotations

import getpass
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lockstep.cli import main
from tests.bringup import kerberos, servers

pytestmark = pytest.mark.debian

HOSTS = ("--hosts", "gpu-[001-001]")
NODE, DOOR = "127.90.98.2", "127.90.98.1"
USER = getpass.getuser()
GSSAPI = ("GSSAPIAuthentication yes", "GSSAPIStrictAcceptorCheck no", "KbdInteractiveAuthentication no")


@dataclass(frozen=True)
class Site:
    """A bastion that takes a key or a ticket, a node that takes tickets alone, and the realm of both."""

    realm: kerberos.Realm
    bastion: servers.Sshd
    node: servers.Sshd
    keytab: Path


@dataclass(frozen=True)
class Home:
    """A user's home and ticket cache."""

    site: Site
    folder: Path
    run: Callable[[list[str]], str]
    """The verb in this process: what it prints."""

    @property
    def cache(self) -> Path:
        return self.folder / "tickets"

    def ticket(self) -> None:
        """One for the user."""
        self.site.realm.ticket(USER, self.site.keytab, self.cache)

    def change(self, old: str, new: str) -> None:
        """In ~/.ssh/config."""
        path = self.folder / ".ssh" / "config"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def audit(self, transport: str) -> tuple[int, dict[str, Any]]:
        """Exit code and report."""
        report = json.loads(self.run(["audit", *HOSTS, "--transport", transport, "--format", "json"]))
        (pool,) = report["pools"]
        return report["exit_code"], pool

    def unreachable(self, transport: str) -> tuple[str, str]:
        """Reason and remedy of the finding; the node must have one."""
        code, pool = self.audit(transport)
        assert code == 3
        (finding,) = pool["findings"]
        assert finding["id"] == "unreachable"
        return finding["observed"], finding["remedy"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """KDC, bastion and node."""
    folder = tmp_path_factory.mktemp("kerberos")
    for name in ("realm", "bastion", "node"):
        (folder / name).mkdir()
    with kerberos.realm(folder / "realm") as realm:
        user = realm.principal(USER)
        doors, nodes = (
            {**realm.environment, "KRB5_KTNAME": f"FILE:{realm.principal(f'host/{at}')}"} for at in (DOOR, NODE)
        )
        outside, inside = servers.make_keys(folder / "bastion"), servers.make_keys(folder / "node")
        with (
            servers.sshd(outside, folder / "bastion", *GSSAPI, environment=doors) as bastion,
            servers.sshd(inside, folder / "node", *GSSAPI, "PubkeyAuthentication no", environment=nodes) as node,
        ):
            yield Site(realm, bastion, node, user)


@pytest.fixture
def home(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Home:
    """A fresh home without a ticket; the bastion is opened by a key."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KRB5_CONFIG", site.realm.environment["KRB5_CONFIG"])
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    def run(words: list[str]) -> str:
        main.run(words)
        return capsys.readouterr().out

    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "config").write_text(
        f"Host gpu-*\n  HostName {NODE}\n  Port {site.node.port}\n  User {USER}\n  ProxyJump door\n"
        "  GSSAPIAuthentication yes\n"
        f"Host door\n  HostName {DOOR}\n  Port {site.bastion.port}\n  User {USER}\n"
        f"  IdentityFile {site.bastion.keys.user}\n"
    )
    both = ((DOOR, site.bastion), (NODE, site.node))
    known = "".join(f"[{at}]:{one.port} {one.keys.public('host')}\n" for at, one in both)
    (tmp_path / ".ssh" / "known_hosts").write_text(known)
    return Home(site, tmp_path, run)


def _accepted(site: Site) -> int:
    return site.node.log.read_text().count(f"Accepted gssapi-with-mic for {USER}")


def test_a_ticket_opens_the_node_behind_the_bastion(home: Home) -> None:
    home.ticket()
    before = _accepted(home.site)
    command = [str(Path(sys.executable).with_name("lockstep")), "audit", *HOSTS, "--transport", "openssh"]
    done = subprocess.run(command, cwd=home.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 node: 1 admit" in done.stdout
    assert _accepted(home.site) == before + 1, "and no other way was taken"


def test_a_ticket_opens_the_bastion_too(home: Home) -> None:
    home.change(f"  IdentityFile {home.site.bastion.keys.user}\n", "  GSSAPIAuthentication yes\n")
    assert "Permission denied" in home.unreachable("openssh")[0]
    home.ticket()
    assert home.audit("openssh")[0] == 0
    assert f"Accepted gssapi-with-mic for {USER}" in home.site.bastion.log.read_text()


def test_without_a_ticket_the_finding_says_so_and_names_kinit(home: Home) -> None:
    observed, remedy = home.unreachable("openssh")
    assert observed.startswith(f"auth: no login of {USER} was accepted (GSSAPI: No Kerberos credentials available")
    assert "kinit" in remedy
    assert "authorized_keys" not in remedy, "no key would help"


def test_a_ticket_of_somebody_else_and_rubbish_in_its_place_are_told_apart(home: Home) -> None:
    home.cache.write_bytes(b"\x1b[2Jrubbish")
    assert "No Kerberos credentials available" in home.unreachable("openssh")[0]
    home.cache.unlink()
    keytab = home.site.realm.principal("somebody")
    home.site.realm.ticket("somebody", keytab, home.cache)
    assert "GSSAPI: the ticket is not for this user" in home.unreachable("openssh")[0]


def test_a_configuration_without_gssapi_is_told_what_it_lacks(home: Home) -> None:
    home.ticket()
    home.change("GSSAPIAuthentication yes", "GSSAPIAuthentication no")
    assert "say GSSAPIAuthentication yes in ~/.ssh/config" in home.unreachable("openssh")[1]


@pytest.mark.parametrize("keyed", [False, True])
def test_our_own_client_refuses_by_name_and_names_the_way(home: Home, keyed: bool) -> None:
    if keyed:
        home.change("  GSSAPIAuthentication yes\n", f"  IdentityFile {home.site.node.keys.user}\n")
    home.ticket()
    observed, remedy = home.unreachable("paramiko")
    assert "the server takes gssapi" in observed
    assert "no keys but GSSAPI, which --transport openssh does" in remedy


def test_a_node_that_takes_keys_and_tickets_names_both_ways(home: Home, tmp_path: Path) -> None:
    (tmp_path / "both").mkdir()
    with servers.sshd(home.site.node.keys, tmp_path / "both", *GSSAPI) as both:
        home.change(f"Port {home.site.node.port}", f"Port {both.port}")
        with (home.folder / ".ssh" / "known_hosts").open("a") as known:
            known.write(f"[{NODE}]:{both.port} {both.keys.public('host')}\n")
        for transport in ("paramiko", "openssh"):
            remedy = home.unreachable(transport)[1]
            assert "authorized_keys" in remedy
            assert "kinit" in remedy
