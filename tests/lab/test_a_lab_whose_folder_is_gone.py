"""Somebody clears a test's temporary folder: its lab must end all the same, and nothing else with it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import labs, leftovers, testing

STATE = Path("/run/test/labs/t100")
OTHERS = STATE.with_name("t1001")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["/bin/sh", "/cache/guest/supervisor", f"{STATE}/nodes/t100-001", "f00d"], "supervisor"),
        (["unshare", "--mount", "--kill-child", "sh", "/g/init", f"{STATE}/nodes/t100-001", "0-1"], "boot"),
        (["sh", "/g/init", f"{STATE}/nodes/t100-001", "0-1"], "boot"),
        (["/usr/bin/python", "-P", "-m", "lab.control_plane_watch", str(STATE), "1:2"], "watcher"),
        (["/t/etcd", "--name=lab", f"--data-dir={STATE}/control-plane/etcd"], "etcd"),
        (["/bin/sh", "-c", "…", "lockstep-lab", f"{STATE}/control-plane/pids/kwok", "f"], "starter"),
        (["/bin/sh", "/cache/guest/supervisor", f"{OTHERS}/nodes/t1001-001", "f00d"], None),
        (["/t/etcd", "--name=lab", f"--data-dir={OTHERS}/control-plane/etcd"], None),
        (["/usr/bin/python", "-P", "-m", "lab.control_plane_watch", str(OTHERS), "1:2"], None),
        (["less", f"{STATE}/nodes/t100-001/console.log"], None),
        (["rm", "-rf", str(STATE)], None),
        (["/usr/bin/python", "-m", "lab.reaper", str(STATE)], None),
        (["grep", f"--file={STATE}/control-plane/x"], None),
        ([], None),
    ],
)
def test_only_what_a_lab_itself_starts_is_taken_for_its_own(arguments: list[str], wanted: str | None) -> None:
    assert leftovers.role(arguments, STATE) == wanted


def _all_gone(state: Path, seconds: float = 60.0) -> bool:
    limit = time.monotonic() + seconds
    while leftovers.find(state) or state.exists():
        if time.monotonic() > limit:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.lab
@pytest.mark.cluster
def test_a_killed_test_whose_folder_was_removed_leaves_no_process(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from lab import testing\n"
        "with testing.fresh_lab(Path(sys.argv[1]), nodes=2, control_plane=True) as lab:\n"
        "    print(lab.state, flush=True); time.sleep(600)\n"
    )
    mine = tmp_path / "killed"
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(mine)], stdout=subprocess.PIPE, text=True, cwd=testing.CHECKOUT
    )
    assert child.stdout is not None
    state = Path(child.stdout.readline().strip())
    roles = [one.role for one in leftovers.find(state)]
    assert roles.count("supervisor") == 2
    assert {"watcher", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"} <= set(roles)
    shutil.rmtree(mine, ignore_errors=True)  # what runs still writes into it
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert _all_gone(state), leftovers.find(state)


@pytest.mark.lab
def test_down_ends_a_lab_whose_folder_vanished_and_leaves_its_neighbour(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path / "a", nodes=1) as gone, testing.fresh_lab(tmp_path / "b", nodes=1) as stays:
        shutil.rmtree(gone.state)
        gone.down(wipe=True)
        assert leftovers.find(gone.state) == ()
        assert stays.ssh(stays.nodes[0], "true").returncode == 0


@pytest.mark.lab
def test_wipe_goes_on_when_somebody_else_removes_the_folder_at_the_same_time(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path, nodes=2) as lab:
        rival = subprocess.Popen(
            ["sh", "-c", 'while [ -d "$1" ]; do rm -rf "$1" 2>/dev/null; done', "sh", str(lab.state)]
        )
        try:
            lab.down(wipe=True)
        finally:
            rival.kill()
            rival.wait()
        assert not lab.state.exists()
        assert leftovers.find(lab.state) == ()
        assert not labs.folder(lab.name, lab.settings).exists()
