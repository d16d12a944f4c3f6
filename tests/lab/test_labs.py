"""A lab's life: repeated, refused, killed half way, ended, removed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import labs, nodes, repository, testing
from lockstep.base import errors

pytestmark = pytest.mark.lab


def _processes_of(state: Path) -> list[str]:
    """Command lines on this machine that name the lab's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(state) in line and "lab.reaper" not in line:
                found.append(line)
    return found


def _mounts_of(state: Path) -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(state) in line]


def _up_command(lab: testing.FreshLab) -> list[str]:
    return [str(Path(sys.executable).with_name("lockstep")), "lab", "up", str(lab.fleet_file), "--no-cluster"]


def test_a_second_up_changes_nothing(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path, nodes=2) as lab:
        before = [(lab.boot_id(node), nodes.pid1(lab.state, node)) for node in lab.nodes]
        known = (lab.state / "known_hosts").read_text()
        lab.up()
        assert [(lab.boot_id(node), nodes.pid1(lab.state, node)) for node in lab.nodes] == before
        assert (lab.state / "known_hosts").read_text() == known


def test_down_ends_every_process_and_keeps_the_disks_and_wipe_removes_all(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path, nodes=2) as lab:
        lab.run(lab.nodes[0], "sh", "-c", "echo kept >/root/note; setsid sleep 1000 >/dev/null 2>&1 &")
        assert _processes_of(lab.state)
        lab.down()
        assert _processes_of(lab.state) == []
        assert _mounts_of(lab.state) == []
        lab.down()  # again: nothing to end
        lab.up()
        assert lab.run(lab.nodes[0], "cat", "/root/note").stdout == "kept\n"
        assert lab.ssh(lab.nodes[0], "true").returncode == 0
        done = lab.lockstep("lab", "down", str(lab.state), "--wipe")
        assert done.returncode == 0, done.stderr
        assert not lab.state.exists()


def test_a_second_lab_on_the_same_addresses_is_refused_naming_the_first(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path, nodes=2) as lab:
        other = tmp_path / "other.yaml"
        other.write_text(lab.fleet_file.read_text().replace(f"fleet: {lab.name}", "fleet: other"))
        done = lab.lockstep("lab", "up", str(other), "--no-cluster")
        assert done.returncode == 4
        assert f"lab {lab.name}" in done.stderr
        assert f"lockstep lab down {lab.name}" in done.stderr
        assert not (lab.state.parent / "other").exists()
        assert all(lab.alive(node) for node in lab.nodes)


def test_a_strange_program_on_a_nodes_address_is_not_fought(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path, nodes=2, start=False) as lab:
        machine = lab.spec().nodes[1]
        refused = pytest.raises(errors.RefusedError, match="something that is not this lab listens")
        with socket.create_server((machine.address, machine.port)), refused:
            lab.up()
        lab.up()
        assert all(lab.alive(node) for node in lab.nodes)


@pytest.mark.parametrize("seconds", [0.4, 0.9, 1.3, 1.8, 2.5])
def test_an_up_that_was_killed_is_finished_by_the_next(tmp_path: Path, seconds: float) -> None:
    with testing.fresh_lab(tmp_path, nodes=4, start=False) as lab:
        killed = subprocess.Popen(
            _up_command(lab), env=lab.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=testing.CHECKOUT
        )
        time.sleep(seconds)
        killed.kill()
        killed.wait()
        status = lab.up()
        assert [node.ssh for node in status.nodes] == ["answers"] * 4
        supervisors = [line for line in _processes_of(lab.state) if "/supervisor " in line]
        assert len(supervisors) == 4, supervisors
        keys = {line.split()[2] for line in (lab.state / "known_hosts").read_text().splitlines()}
        assert len(keys) == 4
        assert all(lab.ssh(node, "true").returncode == 0 for node in lab.nodes)
        lab.down()
        assert _processes_of(lab.state) == []
        assert not repository._agent_home(lab.state).exists(), "a gpg-agent was left"


@pytest.mark.parametrize("seconds", [0.3, 0.8])
def test_a_down_that_was_killed_is_finished_by_the_next(tmp_path: Path, seconds: float) -> None:
    with testing.fresh_lab(tmp_path, nodes=3) as lab:
        program = str(Path(sys.executable).with_name("lockstep"))
        killed = subprocess.Popen(
            [program, "lab", "down", str(lab.state)], env=lab.env, stderr=subprocess.DEVNULL, cwd=testing.CHECKOUT
        )
        time.sleep(seconds)
        killed.kill()
        killed.wait()
        lab.down()
        assert _processes_of(lab.state) == []
        lab.up()
        assert all(lab.alive(node) for node in lab.nodes)


def test_two_commands_at_once_on_one_lab_are_busy_not_mixed(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path, nodes=2, start=False) as lab:
        runs = [
            subprocess.Popen(
                _up_command(lab), env=lab.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            for _ in range(3)
        ]
        ended = [(run.communicate()[1], run.returncode) for run in runs]
        assert {code for _, code in ended} <= {0, 4}
        assert 0 in {code for _, code in ended}
        assert all("another `lockstep lab` works" in said for said, code in ended if code == 4)
        assert len([line for line in _processes_of(lab.state) if "/supervisor " in line]) == 2


def test_a_test_that_is_killed_leaves_no_lab_behind(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from lab import testing\n"
        "with testing.fresh_lab(Path(sys.argv[1]), nodes=2) as lab:\n"
        "    print(lab.state, flush=True); time.sleep(600)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=testing.CHECKOUT
    )
    assert child.stdout is not None
    state = Path(child.stdout.readline().strip())
    assert len([line for line in _processes_of(state) if "/supervisor " in line]) == 2
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    limit = time.monotonic() + 60
    while state.exists() or _processes_of(state):
        assert time.monotonic() < limit, "the reaper did not come"
        time.sleep(0.1)


def test_two_labs_run_side_by_side_on_addresses_of_their_own(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path / "a", nodes=1) as one, testing.fresh_lab(tmp_path / "b", nodes=1) as two:
        assert one.name != two.name
        assert {one.ssh(one.nodes[0], "hostname").stdout, two.ssh(two.nodes[0], "hostname").stdout} == {
            f"{one.nodes[0]}\n",
            f"{two.nodes[0]}\n",
        }


def test_nodes_listen_on_loopback_only(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path, nodes=2) as lab:
        shown = subprocess.run(["ss", "-Hltn", "sport", "=", ":2222"], capture_output=True, text=True, check=True)
        addresses = {line.split()[3].rpartition(":")[0] for line in shown.stdout.splitlines()}
        assert {node.address for node in lab.spec().nodes} <= addresses
        assert all(address.startswith("127.90.") for address in addresses)


def test_a_node_that_changed_in_the_fleet_file_asks_for_a_wipe(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path, nodes=2) as lab:
        text = lab.fleet_file.read_text()
        lab.fleet_file.write_text(text.replace("slot: r1-u02", "slot: r1-u09"))
        with pytest.raises(errors.InputError, match="has another address, slot or SKU now") as caught:
            lab.up()
        assert "--wipe" in str(caught.value.hint)
        lab.fleet_file.write_text(text)


def test_a_lab_grows_by_the_nodes_that_the_fleet_file_gains(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path, nodes=1) as lab:
        text = lab.fleet_file.read_text()
        line = text.splitlines()[-1]
        number = lab.name.removeprefix("t")
        grown = line.replace("-001", "-002").replace("u01", "u02").replace(f"127.90.{number}.1", f"127.90.{number}.2")
        lab.fleet_file.write_text(f"{text}{grown}\n")
        before = lab.boot_id(lab.nodes[0])
        assert [node.ssh for node in lab.up().nodes] == ["answers", "answers"]
        assert lab.boot_id(lab.nodes[0]) == before


def test_an_address_outside_loopback_is_refused_with_its_line(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path, nodes=1, start=False) as lab:
        number = lab.name.removeprefix("t")
        lab.fleet_file.write_text(lab.fleet_file.read_text().replace(f"127.90.{number}.1", "192.0.2.1"))
        done = lab.lockstep("lab", "up", str(lab.fleet_file), "--no-cluster")
        assert done.returncode == 2
        assert "a lab's nodes live on this machine" in done.stderr
        assert f"{lab.fleet_file}:" in done.stderr


def test_anyone_but_root_is_told_so(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from lab import base, labs\n"
        "from lockstep.base import errors\n"
        "os.seteuid(65534)\n"
        "try:\n"
        "    labs.down('lab', print)\n"
        "except errors.InputError as error:\n"
        "    print(error.diagnostics()); sys.exit(int(error.exit_code))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=testing.CHECKOUT)
    assert done.returncode == 2, done.stderr
    assert "needs root" in done.stdout
    assert "hint: sudo" in done.stdout


def test_the_environment_names_the_state_and_the_kubeconfig(tmp_path: Path) -> None:
    with testing.fresh_lab(tmp_path, nodes=1) as lab:
        assert labs.environment(lab.name, lab.settings) == {
            "LOCKSTEP_STATE": str(lab.state),
            "KUBECONFIG": str(lab.state / "kubeconfig"),
        }
        with pytest.raises(errors.InputError, match="there is no lab nowhere"):
            labs.environment("nowhere", lab.settings)


def test_a_file_system_that_carries_no_upper_layer_gets_a_tmpfs_and_says_so(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from lab import testing\n"
        "with testing.fresh_lab(Path(sys.argv[1]), nodes=1) as lab:\n"
        "    node = lab.nodes[0]\n"
        "    lab.run(node, 'sh', '-c', 'echo kept >/root/note')\n"
        "    lab.down(); lab.up()\n"
        "    print(lab.run(node, 'cat', '/root/note').stdout.strip(), lab.ssh(node, 'true').returncode)\n"
        "    print('\\n'.join(lab.log))\n"
        "print('mounts left:', sum(str(Path(sys.argv[1])) in line for line in open('/proc/self/mounts')) - 1)\n"
    )
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    layers = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    # In a mount namespace of its own, so that nothing stays mounted however this ends.
    inside = 'mount -t overlay -o "$1" overlay "$2" && exec "$3" -c "$4" "$2"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside, "sh", layers, str(tmp_path / "merged"), sys.executable, script],
        capture_output=True,
        text=True,
        cwd=testing.CHECKOUT,
    )
    assert done.returncode == 0, done.stderr
    assert "kept 0" in done.stdout
    assert "cannot carry an overlay's upper layer" in done.stdout
    assert "mounts left: 0" in done.stdout
