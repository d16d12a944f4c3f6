"""What a FIPS policy leaves of SSH, behind a bastion of the same policy: both of our ways get through or say why not.

AES, SHA-2, NIST curves and classic groups; no ChaCha20, Curve25519, Ed25519, UMAC or SHA-1. A validated module
(fips.so) is not here: what is shown is that neither client needs anything outside these lists.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bringup import targets
from bringup.transport import ways
from bringup.transport.base import Failure, FailureKind, Outcome, Patience, Target
from lockstep.base.names import NodeName
from tests.bringup import servers

pytestmark = pytest.mark.debian

NODE = NodeName("gpu-001")
CIPHERS = "aes256-gcm@openssh.com,aes256-ctr,aes128-gcm@openssh.com,aes128-ctr"
MACS = "hmac-sha2-256-etm@openssh.com,hmac-sha2-256,hmac-sha2-512-etm@openssh.com,hmac-sha2-512"
KEX = (
    "ecdh-sha2-nistp256,ecdh-sha2-nistp384,ecdh-sha2-nistp521,diffie-hellman-group14-sha256,"
    "diffie-hellman-group16-sha512,diffie-hellman-group18-sha512"
)
KEYS = "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,rsa-sha2-256,rsa-sha2-512"
POLICY = (
    f"Ciphers {CIPHERS}",
    f"MACs {MACS}",
    f"KexAlgorithms {KEX}",
    f"HostKeyAlgorithms {KEYS}",
    f"PubkeyAcceptedAlgorithms {KEYS}",
)
"""Said by sshd_config and ssh_config in the same words."""


@dataclass(frozen=True)
class Site:
    """Two servers under the policy, and one beside the node that offers nothing approved."""

    bastion: servers.Sshd
    node: servers.Sshd
    modern: servers.Sshd


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Keys of the bastion and its user are ECDSA, those of the node RSA."""
    folder = tmp_path_factory.mktemp("fips")
    for name in ("bastion", "node", "modern"):
        (folder / name).mkdir()
    outside = servers.make_keys(folder / "bastion", "ecdsa")
    inside = servers.make_keys(folder / "node", "rsa", "-b", "2048")  # the least that is approved, and soonest made
    new = ("Ciphers chacha20-poly1305@openssh.com", "KexAlgorithms curve25519-sha256")
    with (
        servers.sshd(outside, folder / "bastion", *POLICY) as bastion,
        servers.sshd(inside, folder / "node", *POLICY) as node,
        servers.sshd(inside, folder / "modern", *new) as modern,
    ):
        yield Site(bastion, node, modern)


@pytest.fixture
def home(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user whose own configuration holds to the policy."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    user = getpass.getuser()
    policy = "".join(f"  {line}\n" for line in POLICY)
    config = "".join(
        f"Host {name}\n  HostName 127.90.98.2\n  Port {one.port}\n  User {user}\n  ProxyJump door\n"
        f"  IdentityFile {one.keys.user}\n"
        for name, one in ((NODE, site.node), ("modern", site.modern))
    )
    config += f"Host door\n  HostName 127.90.98.1\n  Port {site.bastion.port}\n  User {user}\n"
    config += f"  IdentityFile {site.bastion.keys.user}\nHost *\n{policy}"
    (tmp_path / ".ssh" / "config").write_text(config)
    places = (("127.90.98.1", site.bastion), ("127.90.98.2", site.node), ("127.90.98.2", site.modern))
    known = "".join(f"[{at}]:{one.port} {one.keys.public('host')}\n" for at, one in places)
    (tmp_path / ".ssh" / "known_hosts").write_text(known)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


def _run(way: str, home: Path, node: str = NODE) -> Outcome | Failure:
    target: Target = targets.for_hosts([node], home=home)[NodeName(node)]
    transport = ways.by_name(way)
    try:
        return transport.run(target, "echo $SSH_CONNECTION\n", Patience())
    finally:
        transport.close()


@pytest.mark.parametrize("way", ways.NAMES)
def test_both_ways_reach_a_node_that_offers_nothing_but_approved_algorithms(home: Path, site: Site, way: str) -> None:
    answer = _run(way, home)
    assert isinstance(answer, Outcome), answer
    assert answer.stdout.split()[2:] == [b"127.90.98.2", str(site.node.port).encode()]


def test_openssh_holds_to_the_policy_of_the_user_and_says_what_it_lacks(home: Path) -> None:
    answer = _run("openssh", home, "modern")
    assert isinstance(answer, Failure), answer
    assert answer.kind is FailureKind.CLOSED
    assert "no matching" in answer.reason
    assert "curve25519-sha256" in answer.reason


def test_our_own_client_names_openssh_where_it_has_no_algorithm_in_common(home: Path) -> None:
    answer = _run("paramiko", home, "modern")
    assert isinstance(answer, Failure), answer
    assert "no algorithm in common" in answer.reason
    assert "--transport openssh" in answer.remedy
