"""What OpenSSH and Ansible make of the files of a run, asked of themselves."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from bringup import ansible_files, playbooks
from bringup.transport.base import Identity, Target, Trust
from lockstep.base.names import NodeName


@pytest.mark.parametrize("folder", ["plain", "with a blank", "per%cent"])
def test_ssh_finds_key_and_known_hosts_whatever_their_folder_is_called(tmp_path: Path, folder: str) -> None:
    home = tmp_path / folder
    home.mkdir()
    key = home / "id_ed25519"
    target = Target(NodeName("n1"), "127.0.0.1", 2222, "root", (Identity(str(key)),), ("ssh-ed25519 AAAA",))
    run = home / "run"
    run.mkdir()
    ansible_files.write(run, [ansible_files.Host(target)], {}, {})
    arguments = shlex.split(ansible_files.environment(run, Path())["ANSIBLE_SSH_ARGS"])
    done = subprocess.run(["ssh", *arguments, "-G", "n1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # `-G` shows a key with its tokens resolved only where it is used; the doubled sign is ssh's own spelling of one.
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert said["identityfile"].replace("%%", "%") == str(key)
    assert said["userknownhostsfile"].replace("%%", "%") == str(run / "known_hosts")
    assert (said["hostname"], said["port"], said["stricthostkeychecking"]) == ("127.0.0.1", "2222", "true")


def test_certificates_and_revoked_keys_reach_the_ssh_of_ansible_too(tmp_path: Path) -> None:
    trust = Trust(revoked=("ssh-ed25519 BBBB",), name="[127.0.0.1]:2222")
    target = Target(
        NodeName("n1"),
        "127.0.0.1",
        2222,
        "root",
        host_keys=("ssh-ed25519 AAAA",),
        certificates=("/k/badge.pub",),
        trust=trust,
    )
    ansible_files.write(tmp_path, [ansible_files.Host(target)], {}, {})
    arguments = shlex.split(ansible_files.environment(tmp_path, Path())["ANSIBLE_SSH_ARGS"])
    done = subprocess.run(["ssh", *arguments, "-G", "n1"], capture_output=True, text=True, check=True)
    assert "certificatefile /k/badge.pub" in done.stdout.splitlines()
    known = (tmp_path / "known_hosts").read_text().splitlines()
    assert known == ["n1 ssh-ed25519 AAAA", "@revoked * ssh-ed25519 BBBB"]


def test_a_loop_that_fails_gives_the_reason_of_its_item() -> None:
    said = playbooks._message(
        {
            "msg": "All items completed",
            "results": [{"msg": "", "changed": True}, {"failed": True, "msg": "cannot write", "stderr": "disk full\n"}],
        }
    )
    assert said == "cannot write: disk full"
