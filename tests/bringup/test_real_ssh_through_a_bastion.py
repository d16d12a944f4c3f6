"""A stranger's ~/.ssh/config, a bastion and a node behind it, each with an sshd, host key and user key of its own.

The node listens on 127.90.98.2 and takes the user's key; the bastion on 127.90.98.1 takes another one.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bringup import targets
from bringup.transport import ways
from bringup.transport.base import Failure, FailureKind, Outcome, Patience, Target
from lockstep.base.names import NodeName
from tests.bringup import servers

pytestmark = pytest.mark.debian

NODE = NodeName("gpu-001")
SCRIPT = "echo $SSH_CONNECTION\n"


@dataclass(frozen=True)
class Site:
    """Two servers, and the home of a user who knows them."""

    home: Path
    bastion: servers.Sshd
    node: servers.Sshd
    authority: Path

    @property
    def known(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    def target(self, node: str = NODE) -> Target:
        """As `audit --hosts` finds it."""
        return targets.for_hosts([node], home=self.home)[NodeName(node)]

    def configure(self, text: str) -> None:
        """Words for the node before those that are there."""
        path = self.home / ".ssh" / "config"
        path.write_text(f"Host {NODE}\n  {text}\n{path.read_text()}")

    def lines(self, node: bool = True, bastion: bool = True) -> str:
        """known_hosts, plain."""
        both = ((node, "127.90.98.2", self.node), (bastion, "127.90.98.1", self.bastion))
        return "".join(f"[{at}]:{one.port} {one.keys.public('host')}\n" for wanted, at, one in both if wanted)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[servers.Sshd, servers.Sshd, Path]]:
    """Bastion and node; the node's host key and user keys may be certified by an authority of ours."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("bastion", "node"):
        (folder / name).mkdir()
    outside, inside = servers.make_keys(folder / "bastion"), servers.make_keys(folder / "node")
    authority = folder / "authority"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(authority)], check=True)
    certify = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test"]
    host = inside.host.with_suffix(".pub")
    subprocess.run([*certify, "-h", "-n", "127.90.98.2", str(host)], check=True)
    # `other` is in nobody's authorized_keys: only its certificate opens the node, and only under another file name.
    subprocess.run([*certify, "-n", getpass.getuser(), str(inside.other.with_suffix(".pub"))], check=True)
    (inside.other.parent / "other-cert.pub").rename(inside.other.parent / "badge.pub")
    more = [f"TrustedUserCAKeys {authority}.pub", f"HostCertificate {inside.host}-cert.pub"]
    with (
        servers.sshd(outside, folder / "bastion") as bastion,
        servers.sshd(inside, folder / "node", *more) as node,
    ):
        yield bastion, node, authority


@pytest.fixture
def site(running: tuple[servers.Sshd, servers.Sshd, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A fresh home: config with the bastion as jump host, hashed known_hosts."""
    bastion, node, authority = running
    (tmp_path / ".ssh").mkdir(mode=0o700)
    made = Site(tmp_path, bastion, node, authority)
    user = getpass.getuser()
    (tmp_path / ".ssh" / "config").write_text(
        f"Host gpu-*\n  HostName 127.90.98.2\n  Port {node.port}\n  User {user}\n  ProxyJump door\n"
        f"Host {NODE}\n  IdentityFile {node.keys.user}\n"
        f"Host door\n  HostName 127.90.98.1\n  Port {bastion.port}\n  User {user}\n  IdentityFile {bastion.keys.user}\n"
    )
    made.known.write_text(made.lines())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(made.known)], check=True, stderr=subprocess.DEVNULL)
    assert made.known.read_text().count("|1|") == 2
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return made


@pytest.fixture(params=ways.NAMES)
def way(request: pytest.FixtureRequest) -> str:
    """The transports, one after the other."""
    if request.param == "openssh" and shutil.which("ssh") is None:
        pytest.skip("ssh is not installed")
    return str(request.param)


def _run(way: str, target: Target, *, accept_new: bool = False) -> Outcome | Failure:
    transport = ways.by_name(way, accept_new=accept_new)
    try:
        return transport.run(target, SCRIPT, Patience())
    finally:
        transport.close()


def _through(answer: Outcome | Failure, site: Site) -> None:
    """It came from the node, and the node saw the bastion."""
    assert isinstance(answer, Outcome), answer
    assert answer.status == 0
    assert answer.stdout.split()[2:] == [b"127.90.98.2", str(site.node.port).encode()]
    assert answer.stderr.replace(b"Killed by signal 1.\r\n", b"") == b""


def _refused(answer: Outcome | Failure, kind: FailureKind) -> str:
    assert isinstance(answer, Failure), answer
    assert answer.kind is kind, answer
    return f"{answer.reason} | {answer.remedy}"


def test_user_port_identity_jump_and_hashed_keys_of_the_configuration_lead_to_the_node(site: Site, way: str) -> None:
    target = site.target()
    assert [(jump.address, jump.port) for jump in target.jumps] == [("127.90.98.1", site.bastion.port)]
    _through(_run(way, target), site)


def test_key_files_with_blanks_and_percent_signs_in_their_path_open_the_node(
    site: Site, way: str, tmp_path: Path
) -> None:
    odd = tmp_path / "100 % sure" / "key"
    odd.parent.mkdir()
    shutil.copy(site.node.keys.user, odd)
    config = site.home / ".ssh" / "config"
    quoted = f'"{str(odd).replace("%", "%%")}"'
    config.write_text(config.read_text().replace(str(site.node.keys.user), quoted))
    _through(_run(way, site.target()), site)


def test_the_key_of_an_agent_opens_the_node(site: Site, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with servers.agent(site.node.keys.user) as socket_path:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket_path)
        _through(_run(way, site.target("gpu-002")), site)
        site.configure(f"IdentitiesOnly yes\n  IdentityFile {site.node.keys.other}")
        config = (site.home / ".ssh" / "config").read_text().replace(f"  IdentityFile {site.node.keys.user}\n", "")
        (site.home / ".ssh" / "config").write_text(config)
        _refused(_run(way, site.target()), FailureKind.AUTH)


def test_a_certificate_file_opens_what_the_key_alone_does_not(site: Site, way: str) -> None:
    config = site.home / ".ssh" / "config"
    config.write_text(config.read_text().replace(str(site.node.keys.user), str(site.node.keys.other)))
    _refused(_run(way, site.target()), FailureKind.AUTH)
    site.configure(f"CertificateFile {site.node.keys.other.parent / 'badge.pub'}")
    _through(_run(way, site.target()), site)


def test_an_unknown_key_is_refused_and_says_so_at_the_node_and_at_the_bastion(site: Site, way: str) -> None:
    site.known.write_text(site.lines(node=False))
    said = _refused(_run(way, site.target()), FailureKind.HOST_KEY_UNKNOWN)
    assert "SHA256:" in said
    assert "no key is known for it" in said
    assert "--accept-new-host-keys" in said
    site.known.write_text(site.lines(bastion=False))
    assert "host key unknown" in _refused(_run(way, site.target()), FailureKind.JUMP)


def test_new_keys_are_accepted_by_word_alone_and_written_down(site: Site, way: str) -> None:
    site.known.unlink()
    _refused(_run(way, site.target()), FailureKind.JUMP)
    assert not site.known.exists()
    _through(_run(way, site.target(), accept_new=True), site)
    assert sorted(site.known.read_text().splitlines()) == sorted(site.lines().splitlines())
    assert site.known.stat().st_mode & 0o777 == 0o600
    _through(_run(way, site.target()), site)


def test_a_changed_key_stays_refused_whatever_is_said(site: Site, way: str) -> None:
    wrong = site.lines(node=False) + f"[127.90.98.2]:{site.node.port} {site.node.keys.public('other')}\n"
    site.known.write_text(wrong)
    for word in (False, True):
        assert "known is" in _refused(_run(way, site.target(), accept_new=word), FailureKind.HOST_KEY_CHANGED)
    assert site.known.read_text() == wrong


def test_a_revoked_key_is_refused_by_name_whatever_is_said(site: Site, way: str) -> None:
    site.known.write_text(f"@revoked * {site.node.keys.public('host')}\n{site.lines(node=False)}")
    for word in (False, True):
        said = _refused(_run(way, site.target(), accept_new=word), FailureKind.HOST_KEY_REVOKED)
        assert "@revoked" in said


def test_a_host_certificate_is_honoured_by_openssh_and_refused_by_name_by_our_own_client(site: Site, way: str) -> None:
    public = " ".join(site.authority.with_suffix(".pub").read_text().split()[:2])
    site.known.write_text(f"@cert-authority [127.90.98.*]:{site.node.port} {public}\n{site.lines(node=False)}")
    answer = _run(way, site.target(), accept_new=True)
    if way == "openssh":
        _through(answer, site)
    else:
        said = _refused(answer, FailureKind.HOST_KEY_UNKNOWN)
        assert "@cert-authority" in said
        assert "--transport openssh" in said


def test_a_server_with_none_of_the_preferred_algorithms_is_served_all_the_same(
    site: Site, way: str, tmp_path: Path
) -> None:
    old = ("KexAlgorithms diffie-hellman-group14-sha256", "Ciphers aes256-ctr", "MACs hmac-sha2-512")
    (tmp_path / "old").mkdir()
    with servers.sshd(site.node.keys, tmp_path / "old", *old) as server:
        answer = _run(way, replace(site.target(), port=server.port))
    assert isinstance(answer, Outcome), answer


def test_a_server_with_no_algorithm_in_common_names_the_other_transport(site: Site, tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    with servers.sshd(site.node.keys, tmp_path / "odd", "Ciphers chacha20-poly1305@openssh.com") as server:
        target = replace(site.target(), port=server.port)
        ours = _run("paramiko", target)
        theirs = _run("openssh", target)
    assert "--transport openssh" in _refused(ours, FailureKind.CLOSED)
    assert isinstance(theirs, Outcome), theirs


def test_a_proxy_command_is_run_by_openssh_alone(site: Site, way: str) -> None:
    config = site.home / ".ssh" / "config"
    # Any program between us and the node; this one goes by the same bastion.
    through = f"ssh -F {config} -o UserKnownHostsFile={site.known} -W %h:%p door"
    config.write_text(config.read_text().replace("  ProxyJump door\n", f"  ProxyCommand {through}\n", 1))
    answer = _run(way, site.target())
    if way == "openssh":
        _through(answer, site)
    else:
        assert "--transport openssh" in _refused(answer, FailureKind.NO_ROUTE)


def test_openssh_leaves_no_file_no_process_and_no_shared_connection(site: Site) -> None:
    transport = ways.by_name("openssh")
    _through(transport.run(site.target(), SCRIPT, Patience()), site)
    transport.close()
    assert list(Path("/dev/shm").glob("lockstep-ssh.*")) == []
    assert {path.name for path in (site.home / ".ssh").iterdir()} == {"config", "known_hosts", "known_hosts.old"}


def _audit(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    """The program itself, in the home of `site`."""
    environ = {"HOME": str(site.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    command = [str(Path(sys.executable).with_name("lockstep")), "audit", "--hosts", "gpu-[001-001]", *words]
    return subprocess.run(command, env=environ, cwd=site.home, capture_output=True, text=True)


def test_the_audit_reports_an_unknown_key_as_unreachable_and_takes_it_when_told_to(site: Site, way: str) -> None:
    site.known.write_text(site.lines(node=False))
    refused = _audit(site, "--transport", way)
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "host key unknown" in refused.stdout
    assert site.known.read_text() == site.lines(node=False)
    taken = _audit(site, "--transport", way, "--accept-new-host-keys")
    assert taken.returncode == 0, taken.stdout + taken.stderr
    assert sorted(site.known.read_text().splitlines()) == sorted(site.lines().splitlines())
