"""Real nodes: login, own identity, apt, reboot, power, re-image."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from lab import hardware, nodes, testing
from lockstep.base import errors

pytestmark = pytest.mark.lab


def _host_key(lab: testing.FreshLab, node: str) -> str:
    return " ".join(lab.run(node, "cat", "/etc/ssh/ssh_host_ed25519_key.pub").stdout.split()[:2])


def _until_boot_id_changes(lab: testing.FreshLab, node: str, before: str | None) -> None:
    limit = time.monotonic() + 60
    while lab.boot_id(node) in (None, before):
        assert time.monotonic() < limit, "no new boot"
        time.sleep(0.05)
    for _ in nodes.wait_ready(lab.state, [lab.spec().node(node)]):
        pass


def test_a_node_answers_over_ssh_with_the_host_key_that_the_lab_wrote_down(lab: testing.FreshLab) -> None:
    for node in lab.nodes:
        done = lab.ssh(node, "hostname; id -un")
        assert (done.returncode, done.stdout.split()) == (0, [node, "root"]), done.stderr


def test_no_two_nodes_share_a_host_key_a_boot_id_a_machine_id_or_a_serial(lab: testing.FreshLab) -> None:
    for script in (
        "cat /etc/ssh/ssh_host_ed25519_key.pub",
        "cat /proc/sys/kernel/random/boot_id",
        "cat /etc/machine-id",
        "cat /sys/class/dmi/id/product_serial",
    ):
        answers = {lab.run(node, "sh", "-c", script).stdout for node in lab.nodes}
        assert len(answers) == len(lab.nodes), script
    keys = {_host_key(lab, node) for node in lab.nodes}
    assert keys == {" ".join(line.split()[1:3]) for line in (lab.state / "known_hosts").read_text().splitlines()}
    assert not list(lab.state.joinpath("base").glob("etc/ssh/ssh_host_*")), "the base tree carries a host key"


def test_a_node_has_its_own_processes_mounts_host_name_and_clock(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    shown = lab.run(node, "ps", "-e", "-o", "pid=,args=").stdout.splitlines()
    assert shown[0].split()[0] == "1"
    assert len(shown) < 15, "it sees the host's processes"
    assert float(lab.run(node, "cat", "/proc/uptime").stdout.split()[0]) < float(
        Path("/proc/uptime").read_text().split()[0]
    )
    for kind in ("mnt", "pid", "uts", "ipc"):
        inside = lab.run(node, "readlink", f"/proc/1/ns/{kind}").stdout.strip()
        assert inside != os.readlink(f"/proc/self/ns/{kind}"), kind


def test_a_fresh_node_has_an_old_kernel_and_no_driver(lab: testing.FreshLab) -> None:
    node = lab.nodes[2]
    assert lab.run(node, "uname", "-r").stdout == "6.1.0-40-amd64\n"
    assert lab.run(node, "modinfo", "nvidia", check=False).returncode == 1
    assert lab.run(node, "sh", "-c", "command -v nvidia-smi", check=False).returncode != 0
    assert lab.run(node, "ls", "/sys/bus/pci/devices").stdout.split() == [
        "0008:01:00.0",
        "0009:01:00.0",
        "0018:01:00.0",
        "0019:01:00.0",
    ]


def test_a_reboot_gives_a_new_boot_id_and_keeps_packages_and_holds(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    script = (
        "apt-get -qq update; apt-get -qq install -y libnccl2=2.28.9-1+cuda13.0; apt-mark hold libnccl2; : >/run/gone"
    )
    done = lab.ssh(node, f"export DEBIAN_FRONTEND=noninteractive; {script}")
    assert done.returncode == 0, done.stderr
    before = lab.boot_id(node)
    assert lab.ssh(node, "cat /proc/sys/kernel/random/boot_id").stdout.strip() == before
    assert lab.ssh(node, "reboot").returncode == 0
    _until_boot_id_changes(lab, node, before)
    assert lab.ssh(node, "cat /proc/sys/kernel/random/boot_id").stdout.strip() == lab.boot_id(node)
    assert lab.ssh(node, "dpkg-query -W -f '${Version}' libnccl2").stdout == "2.28.9-1+cuda13.0"
    assert lab.ssh(node, "apt-mark showhold").stdout.split() == ["libnccl2"]
    assert lab.ssh(node, "ls /run/gone").returncode != 0


def test_apt_refuses_a_repository_that_somebody_changed(lab: testing.FreshLab) -> None:
    node = lab.nodes[2]
    index = lab.state / "repository" / "Packages"
    content = index.read_bytes()
    index.write_bytes(content.replace(b"Version: 2.28.9", b"Version: 2.28.8"))
    try:
        tampered = lab.run(node, "apt-get", "update", check=False)
    finally:
        index.write_bytes(content)
    assert tampered.returncode != 0
    assert "Packages" in tampered.stderr
    release = lab.state / "repository" / "InRelease"
    content = release.read_bytes()
    release.write_bytes(content.replace(b"Origin: Lockstep lab", b"Origin: Somebody"))
    try:
        unsigned = lab.run(node, "sh", "-c", "rm -rf /var/lib/apt/lists/*; apt-get update", check=False)
    finally:
        release.write_bytes(content)
    assert unsigned.returncode != 0 or "BADSIG" in unsigned.stderr + unsigned.stdout
    assert lab.run(node, "apt-get", "update").returncode == 0


def test_power_off_on_and_state_are_what_a_bmc_command_needs(lab: testing.FreshLab) -> None:
    node, config = lab.nodes[2], lab.fleet().node(lab.nodes[2])
    assert config is not None
    assert config.bmc is not None
    before = lab.boot_id(node)

    def call(command: tuple[str, ...] | None) -> str:
        assert command is not None
        done = lab.lockstep(*(word.replace("{node}", node) for word in command[1:]))
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert call(config.bmc.state) == "on\n"
    call(config.bmc.off)
    assert call(config.bmc.state) == "off\n"
    assert not lab.alive(node)
    call(config.bmc.off)  # off twice is off
    call(config.bmc.on)
    assert call(config.bmc.state) == "on\n"
    assert lab.boot_id(node) not in (None, before)
    assert lab.ssh(node, "true").returncode == 0


def test_a_reimage_brings_a_new_machine_with_a_fresh_disk_and_prints_its_host_key(lab: testing.FreshLab) -> None:
    node = lab.nodes[2]
    machine = lab.state / "nodes" / node / "machine"
    lab.run(node, "touch", "/root/something")
    serial, cards, key = hardware.serial(machine), hardware.gpus(machine), _host_key(lab, node)
    lab.power_off(node)
    done = lab.lockstep("lab", "reimage", node, "--lab", str(lab.state))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == _host_key(lab, node) != key
    assert lab.alive(node)
    assert hardware.serial(machine) != serial
    assert {card.serial for card in hardware.gpus(machine)}.isdisjoint(card.serial for card in cards)
    assert lab.run(node, "ls", "/root/something", check=False).returncode != 0
    refused = lab.ssh(node, "true")
    assert refused.returncode == 255, "the old host key must not be taken for the new one"
    assert "IDENTIFICATION HAS CHANGED" in refused.stderr


def test_a_node_whose_pid_1_is_killed_stays_off_until_it_is_powered_on(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    pid = nodes.pid1(lab.state, node)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    limit = time.monotonic() + 20
    while lab.alive(node) or nodes.banner(lab.spec().node(node)) != "refused":
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert lab.power_on(node)
    assert not lab.power_on(node), "it was on already"


def test_a_daemon_that_holds_a_gpu_is_seen_on_the_device(lab: testing.FreshLab, gpu_node: str) -> None:
    lab.run(gpu_node, "sh", "-c", "setsid sh -c 'exec 3</dev/nvidia1; sleep 300' >/dev/null 2>&1 &")
    count = "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c -- '-> /dev/nvidia1$' || true"
    for _ in range(100):
        if links := int(lab.run(gpu_node, "sh", "-c", count).stdout):
            break
        time.sleep(0.1)
    assert links >= 1
    busy = lab.run(gpu_node, "modprobe", "-r", "nvidia", check=False)
    assert (busy.returncode, "in use" in busy.stderr) == (1, True)
    listed = lab.run(gpu_node, "nvidia-smi", "--query-compute-apps=pid,gpu_bus_id", "--format=csv,noheader").stdout
    assert "00000009:01:00.0" in listed


def test_a_command_inside_a_node_passes_its_exit_code_on(lab: testing.FreshLab) -> None:
    done = lab.lockstep("lab", "exec", "--lab", str(lab.state), lab.nodes[0], "--", "sh", "-c", "hostname; exit 7")
    assert (done.returncode, done.stdout) == (7, f"{lab.nodes[0]}\n")


def test_an_unknown_node_or_lab_is_an_input_error_with_the_names_that_exist(lab: testing.FreshLab) -> None:
    with pytest.raises(errors.InputError, match="no node nobody") as caught:
        lab.spec().node("nobody")
    assert lab.nodes[0] in str(caught.value.hint)
    done = lab.lockstep("lab", "power", lab.nodes[0], "state", "--lab", "nowhere")
    assert done.returncode == 2
    assert "there is no lab nowhere" in done.stderr


def test_the_lab_keeps_its_spec_as_json(lab: testing.FreshLab) -> None:
    kept = json.loads((lab.state / "lab.json").read_text())
    assert [node["name"] for node in kept["nodes"]] == list(lab.nodes)
    assert (lab.state.stat().st_mode & 0o777, (lab.state / "ssh/id_ed25519").stat().st_mode & 0o777) == (0o700, 0o600)
