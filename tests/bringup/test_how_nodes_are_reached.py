"""~/.ssh/config, known_hosts and the fleet's ssh section → targets."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from bringup import targets
from bringup.transport import known_hosts, ssh_config
from bringup.transport.base import Identity, Target
from inventory import load
from lockstep.base import errors, settings
from lockstep.base.names import NodeName
from tests.bringup import answers

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMxFfH0t392ipdKEbXNQ4SLgJ42/DkH6JZvq6XlRlLE0"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPBk0VyHk7dJqYc8pJ0n9KkqmsyPpmZ2Q4dgnaMVY9Vb"

CONFIG = """
# comment
Host bastion
    HostName 192.0.2.1
    User jumper
    Port 2200

Host gpu-* !gpu-009
    User=admin
    IdentityFile ~/.ssh/fleet_%u
    IdentityFile "~/.ssh/with blank"
    ProxyJump bastion,second@inner:2201
    UserKnownHostsFile ~/.ssh/gpu_hosts

Host gpu-001
    User never
    HostKeyAlias one

Match host proxied user somebody-else
    ProxyCommand nc %h %p

Host *.example
    HostName %h.internal

Host *
    Port 22022
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(CONFIG)
    return tmp_path


def test_the_first_value_wins_and_patterns_may_exclude(home: Path) -> None:
    config = ssh_config.load(home=home)
    assert (config.lookup("gpu-001").user, config.lookup("gpu-001").port) == ("admin", 22022)
    assert config.lookup("gpu-009").user is None
    assert config.lookup("gpu-001").host_key_alias == "one"
    assert config.lookup("a.example").hostname == "a.example.internal"
    assert config.lookup("gpu-001").proxy_jump == ("bastion", "second@inner:2201")
    assert config.lookup("gpu-001").identity_files[1] == home / ".ssh" / "with blank"


def test_proxy_command_is_refused_and_not_run(home: Path) -> None:
    fleet = targets.for_hosts(["proxied"], home=home)
    assert fleet[NodeName("proxied")].refused is None
    (home / ".ssh" / "config").write_text("Host proxied\n ProxyCommand nc %h %p\n")
    refused = targets.for_hosts(["proxied"], home=home)[NodeName("proxied")].refused
    assert refused is not None
    assert "ProxyJump" in refused


def test_included_files_are_read_in_place(home: Path) -> None:
    (home / ".ssh" / "conf.d").mkdir()
    (home / ".ssh" / "conf.d" / "one").write_text("Host gpu-002\n  User included\n")
    (home / ".ssh" / "config").write_text("Include conf.d/*\nHost gpu-002\n  User late\n")
    assert ssh_config.load(home=home).lookup("gpu-002").user == "included"


def test_a_chain_of_jump_hosts_carries_the_user_port_and_keys_of_each(home: Path) -> None:
    (home / ".ssh" / "known_hosts").write_text(f"[192.0.2.1]:2200 {KEY}\n")
    (home / ".ssh" / "gpu_hosts").write_text(f"[one]:22022 {OTHER}\n")
    target = targets.for_hosts(["gpu-001"], home=home)[NodeName("gpu-001")]
    first, second = target.jumps
    assert (first.address, first.port, first.user, first.host_keys) == ("192.0.2.1", 2200, "jumper", (KEY,))
    assert (second.address, second.port, second.user) == ("inner", 2201, "second")
    assert target.host_keys == (OTHER,)


@pytest.mark.parametrize("host", ["gpu-001", "gpu-009", "bastion", "a.example", "elsewhere"])
def test_openssh_itself_reads_the_same(home: Path, host: str) -> None:
    if shutil.which("ssh") is None:
        pytest.skip("ssh is not installed")
    done = subprocess.run(
        ["ssh", "-G", "-F", str(home / ".ssh" / "config"), host], capture_output=True, text=True, check=True
    )
    theirs = dict(line.partition(" ")[::2] for line in reversed(done.stdout.splitlines()))
    ours = ssh_config.load(home / ".ssh" / "config", home=home).lookup(host)
    assert (ours.hostname, str(ours.port)) == (theirs["hostname"], theirs["port"])
    assert ours.user in (None, theirs["user"])
    assert ",".join(ours.proxy_jump) == theirs.get("proxyjump", "")


def test_plain_hashed_and_ported_lines_are_found(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"gpu-001,192.0.2.7 {KEY}\n[gpu-002]:2222 {OTHER} comment\n*.example,!bad.example {KEY}\n")
    if shutil.which("ssh-keygen") is not None:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, stderr=subprocess.DEVNULL)
        assert "|1|" in path.read_text()
    known = known_hosts.load([path])
    assert known.lookup("gpu-001") == (KEY,)
    assert known.lookup("192.0.2.7") == (KEY,)
    assert known.lookup("gpu-002", 2222) == (OTHER,)
    assert known.lookup("gpu-002") == ()
    assert known.lookup("a.example") == (KEY,)
    assert known.lookup("bad.example") == ()
    assert known.lookup("stranger") == ()


def test_a_revoked_key_is_never_accepted() -> None:
    known = known_hosts.parse(f"gpu-001 {KEY}\ngpu-001 {OTHER}\n@revoked * {KEY}\n@cert-authority * {KEY}\n")
    assert known.lookup("gpu-001") == (OTHER,)


@given_by(st.text(max_size=300))
def test_any_text_is_read_as_known_hosts_and_as_configuration(text: str) -> None:
    known_hosts.parse(text).lookup("host")
    ssh_config.SshConfig(ssh_config.parse(text)).lookup("host")


def test_the_fleets_own_words_win_over_the_users_configuration(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    key = tmp_path / "key"
    key.write_text("PRIVATE KEY")
    key.chmod(0o600)
    ssh = f"{{user: root, port: 2222, identity: {{file: {key}}}, known_hosts: known}}"
    (tmp_path / "known").write_text(f"[127.90.98.1]:2222 {KEY}\n")
    given = settings.Settings(None, tmp_path / "state", tmp_path / "cache", tmp_path / "labs")
    fleet = load.fleet(str(answers.fleet_file(tmp_path, {"gpu-001": ""}, ssh)), given)
    target: Target = targets.for_fleet(fleet)[NodeName("gpu-001")]
    assert (target.address, target.port, target.user) == ("127.90.98.1", 2222, "root")
    assert target.identities == (Identity(str(key)),)
    assert not target.agent
    assert len(target.jumps) == 2


def test_a_private_key_that_others_can_read_stops_everything(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("PRIVATE KEY")
    key.chmod(0o644)
    given = settings.Settings(None, tmp_path / "state", tmp_path / "cache", tmp_path / "labs")
    fleet = load.fleet(str(answers.fleet_file(tmp_path, {"a": ""}, f"{{identity: {{file: {key}}}}}")), given)
    with pytest.raises(errors.InputError, match="can be read by others"):
        targets.for_fleet(fleet)
