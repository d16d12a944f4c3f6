"""Every kind of `lab break`, seen from outside as an audit would see it, and undone."""

from __future__ import annotations

import os
import socket
import subprocess
import time

import pytest

from lab import faults, hardware, labs, marks, nodes, testing
from lockstep.base import errors

pytestmark = pytest.mark.lab


@pytest.fixture(autouse=True)
def _everything_mended(lab: testing.FreshLab, gpu_node: str) -> object:
    yield
    for node in lab.nodes:
        lab.mend_node(node)
        assert marks.noted(lab.state, node) == ()


def _smi(lab: testing.FreshLab, node: str, query: str) -> list[str]:
    return lab.run(node, "nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader").stdout.splitlines()


def _package(lab: testing.FreshLab, node: str, name: str) -> str:
    return lab.run(node, "dpkg-query", "-W", "-f", "${Version}", name).stdout


def test_other_version_is_another_package_and_another_library_on_disk(lab: testing.FreshLab, gpu_node: str) -> None:
    lab.run(gpu_node, "apt-mark", "hold", "libnccl2")
    said = lab.break_node(gpu_node, faults.Kind.OTHER_VERSION)
    assert "2.28.9-1+cuda13.0 → " in said
    assert _package(lab, gpu_node, "libnccl2") != "2.28.9-1+cuda13.0"
    library = lab.run(gpu_node, "readlink", "-f", "/usr/lib/x86_64-linux-gnu/libnccl.so.2").stdout.strip()
    assert not library.endswith("2.28.9")
    text = lab.run(gpu_node, "grep", "-ao", "NCCL version [0-9.]*", library).stdout
    assert text.split()[-1] == library.rpartition(".so.")[2]
    assert lab.run(gpu_node, "apt-mark", "showhold").stdout == "libnccl2\n", "the hold is kept"
    lab.mend_node(gpu_node)
    assert _package(lab, gpu_node, "libnccl2") == "2.28.9-1+cuda13.0"


def test_other_version_takes_package_and_version(lab: testing.FreshLab, gpu_node: str) -> None:
    lab.break_node(gpu_node, faults.Kind.OTHER_VERSION, package="nvidia-imex", version="580.95.05-1")
    assert lab.run(gpu_node, "nvidia-imex", "--version").stdout == "IMEX version is: 580.95.05\n"
    lab.mend_node(gpu_node)
    assert lab.run(gpu_node, "nvidia-imex", "--version").stdout == "IMEX version is: 580.105.08\n"
    with pytest.raises(errors.InputError, match="no package nonsense"):
        lab.break_node(gpu_node, faults.Kind.OTHER_VERSION, package="nonsense")
    with pytest.raises(errors.RefusedError, match="has no kubelet installed"):
        lab.break_node(gpu_node, faults.Kind.OTHER_VERSION, package="kubelet")


def test_a_driver_upgrade_without_a_reboot_shows_another_driver_on_disk_than_running(
    lab: testing.FreshLab, gpu_node: str
) -> None:
    assert "not rebooted" in lab.break_node(gpu_node, faults.Kind.UPGRADED_NOT_REBOOTED)
    disk = lab.run(gpu_node, "modinfo", "-F", "version", "nvidia").stdout.strip()
    assert lab.run(gpu_node, "cat", "/sys/module/nvidia/version").stdout.strip() == "580.105.08" != disk
    failed = lab.run(gpu_node, "nvidia-smi", check=False)
    assert failed.returncode == 18
    assert failed.stdout.startswith(
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580."
    )
    lab.power_off(gpu_node)
    lab.power_on(gpu_node)
    assert lab.run(gpu_node, "cat", "/sys/module/nvidia/version").stdout.strip() == disk, (
        "a boot loads what lies on disk"
    )
    assert "module reloaded" in lab.mend_node(gpu_node)[0]
    assert _smi(lab, gpu_node, "driver_version") == ["580.105.08"] * 4


def test_firmware_of_one_gpu_differs_from_its_three_neighbours(lab: testing.FreshLab, gpu_node: str) -> None:
    before = _smi(lab, gpu_node, "vbios_version")
    assert len(set(before)) == 1
    lab.break_node(gpu_node, faults.Kind.GPU_FIRMWARE, slot="gpu1")
    after = _smi(lab, gpu_node, "vbios_version")
    assert [position for position in range(4) if after[position] != before[position]] == [1]
    with pytest.raises(errors.InputError, match="no GPU gpu9"):
        lab.break_node(lab.nodes[1], faults.Kind.GPU_FIRMWARE, slot="gpu9")
    with pytest.raises(errors.RefusedError, match="broken by gpu-firmware already"):
        lab.break_node(gpu_node, faults.Kind.GPU_FIRMWARE)
    lab.mend_node(gpu_node)
    assert _smi(lab, gpu_node, "vbios_version") == before


def test_a_lost_gpu_leaves_the_bus_and_the_ones_behind_it_move_up(lab: testing.FreshLab, gpu_node: str) -> None:
    lab.break_node(gpu_node, faults.Kind.GPU_LOST, slot="gpu0")
    assert _smi(lab, gpu_node, "index,pci.bus_id") == [
        "0, 00000009:01:00.0",
        "1, 00000018:01:00.0",
        "2, 00000019:01:00.0",
    ]
    assert "0008:01:00.0" not in lab.run(gpu_node, "ls", "/sys/bus/pci/devices").stdout
    assert [card.state for card in hardware.gpus(lab.state / "nodes" / gpu_node / "machine")].count("lost") == 1
    lab.mend_node(gpu_node)
    assert len(_smi(lab, gpu_node, "index")) == 4
    assert "0008:01:00.0" in lab.run(gpu_node, "ls", "/sys/bus/pci/devices").stdout


def test_a_hung_sshd_accepts_and_never_sends_a_banner(lab: testing.FreshLab, gpu_node: str) -> None:
    machine = lab.spec().node(lab.nodes[1])
    lab.break_node(machine.name, faults.Kind.SSHD_HUNG)
    with socket.create_connection((machine.address, machine.port), timeout=5) as connection:
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert lab.alive(machine.name)
    lab.mend_node(machine.name)
    assert lab.ssh(machine.name, "true").returncode == 0


def test_a_dead_node_refuses_connections_and_mending_boots_it(lab: testing.FreshLab, gpu_node: str) -> None:
    machine = lab.spec().node(lab.nodes[1])
    before = lab.boot_id(machine.name)
    lab.break_node(machine.name, faults.Kind.NODE_DEAD)
    assert not lab.alive(machine.name)
    assert nodes.banner(machine) == "refused"
    assert "left off" in "\n".join([*lab.log[-1:], *_up(lab)])
    assert not lab.alive(machine.name), "`lab up` does not hide what was broken on purpose"
    with pytest.raises(errors.RefusedError, match="is off"):
        lab.run(machine.name, "true")
    assert lab.mend_node(machine.name) == [f"{machine.name}: booted"]
    assert lab.boot_id(machine.name) not in (None, before)


def _up(lab: testing.FreshLab) -> list[str]:
    at = len(lab.log)
    lab.up()
    return lab.log[at:]


def test_a_changed_host_key_is_refused_by_a_client_that_verifies(lab: testing.FreshLab, gpu_node: str) -> None:
    node = lab.nodes[1]
    lab.break_node(node, faults.Kind.HOST_KEY)
    _wait_for_sshd(lab, node)
    refused = lab.ssh(node, "true")
    assert refused.returncode == 255
    assert "IDENTIFICATION HAS CHANGED" in refused.stderr
    lab.mend_node(node)
    _wait_for_sshd(lab, node)
    assert lab.ssh(node, "true").returncode == 0


def _wait_for_sshd(lab: testing.FreshLab, node: str) -> None:
    for _ in nodes.wait_ready(lab.state, [lab.spec().node(node)]):
        pass


def test_a_hanging_nvidia_smi_ignores_term_keeps_its_pipe_and_outlives_its_caller(
    lab: testing.FreshLab, gpu_node: str
) -> None:
    lab.break_node(gpu_node, faults.Kind.SMI_HANGS)
    script = "nvidia-smi -q -x & echo started $!; sleep 0.5; kill -TERM $!; sleep 0.5; kill -0 $! && echo alive"
    caller = subprocess.Popen(
        [*lab.ssh_arguments(gpu_node), script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert caller.stdout is not None
    pid = caller.stdout.readline().split()[1]
    assert caller.stdout.readline() == "alive\n"
    # The script is over; the stuck tool holds the session's output open, so the session does not end.
    os.set_blocking(caller.stdout.fileno(), False)
    with pytest.raises(subprocess.TimeoutExpired):
        caller.wait(1)
    caller.kill()
    caller.wait()
    assert lab.run(gpu_node, "kill", "-0", pid, check=False).returncode == 0
    lab.mend_node(gpu_node)
    limit = time.monotonic() + 20
    while lab.run(gpu_node, "kill", "-0", pid, check=False).returncode == 0:
        assert time.monotonic() < limit
        time.sleep(0.1)
    assert len(_smi(lab, gpu_node, "index")) == 4


def _loaded_nccl(lab: testing.FreshLab, node: str) -> str:
    """The file that a program linked to NCCL would get: the loader's first choice."""
    listed = lab.run(node, "ldconfig", "-p").stdout.splitlines()
    return next(line for line in listed if "libnccl.so.2" in line).rpartition(" => ")[2]


def test_a_shadowed_nccl_is_another_library_before_the_package_s(lab: testing.FreshLab, gpu_node: str) -> None:
    packaged = "/lib/x86_64-linux-gnu/libnccl.so.2"
    assert _loaded_nccl(lab, gpu_node) == packaged
    assert "before that of package libnccl2 2.28.9-1" in lab.break_node(gpu_node, faults.Kind.NCCL_SHADOWED)
    assert _loaded_nccl(lab, gpu_node) == "/usr/local/lib/libnccl.so.2"
    assert _package(lab, gpu_node, "libnccl2") == "2.28.9-1+cuda13.0", "the package database knows nothing of it"
    text = lab.run(gpu_node, "grep", "-ao", "NCCL version [0-9.]*", "/usr/local/lib/libnccl.so.2").stdout
    assert text.split()[-1] != "2.28.9"
    lab.mend_node(gpu_node)
    assert _loaded_nccl(lab, gpu_node) == packaged
    assert "libnccl" not in lab.run(gpu_node, "ls", "/usr/local/lib").stdout
    with pytest.raises(errors.RefusedError, match="no libnccl2 installed"):
        lab.break_node(lab.nodes[2], faults.Kind.NCCL_SHADOWED)


def test_a_removed_hold_leaves_the_version_and_is_over_when_somebody_holds_again(
    lab: testing.FreshLab, gpu_node: str
) -> None:
    with pytest.raises(errors.RefusedError, match="holds no package"):
        lab.break_node(lab.nodes[2], faults.Kind.HOLD_REMOVED)
    lab.run(gpu_node, "apt-mark", "hold", "libnccl2", "nvidia-imex")
    assert "libnccl2 is no longer held" in lab.break_node(gpu_node, faults.Kind.HOLD_REMOVED)
    assert lab.run(gpu_node, "apt-mark", "showhold").stdout == "nvidia-imex\n"
    assert marks.standing(lab.state, gpu_node) == (faults.Kind.HOLD_REMOVED,)
    lab.run(gpu_node, "apt-mark", "hold", "libnccl2")
    assert marks.standing(lab.state, gpu_node) == ()
    with pytest.raises(errors.RefusedError, match="does not hold libcuda1"):
        lab.break_node(gpu_node, faults.Kind.HOLD_REMOVED, package="libcuda1")
    lab.break_node(gpu_node, faults.Kind.HOLD_REMOVED, package="nvidia-imex")
    assert lab.mend_node(gpu_node) == [f"{gpu_node}: nvidia-imex held again"]
    assert lab.run(gpu_node, "apt-mark", "showhold").stdout.split() == ["libnccl2", "nvidia-imex"]
    lab.run(gpu_node, "apt-mark", "unhold", "libnccl2", "nvidia-imex")


def test_a_full_disk_takes_no_more_and_a_boot_or_mending_makes_room(lab: testing.FreshLab, gpu_node: str) -> None:
    node = lab.nodes[1]
    write = ("sh", "-c", "head -c 100000 /dev/zero >/tmp/more")
    lab.break_node(node, faults.Kind.DISK_FULL)
    assert lab.run(node, *write, check=False).returncode != 0
    assert "100%" in lab.run(node, "df", "-P", "/tmp").stdout
    lab.mend_node(node)
    lab.run(node, *write)
    lab.break_node(node, faults.Kind.DISK_FULL)
    lab.power_off(node)
    lab.power_on(node)
    assert marks.noted(lab.state, node) == ()
    lab.run(node, *write)


def test_mending_leaves_alone_what_somebody_else_changed_since(lab: testing.FreshLab, gpu_node: str) -> None:
    lab.break_node(gpu_node, faults.Kind.OTHER_VERSION, version="2.27.7-1+cuda13.0")
    lab.run(
        gpu_node,
        *("apt-get", "-qq", "install", "-y", "--allow-change-held-packages", "libnccl2=2.30.7-1+cuda13.3"),
    )
    assert "mended by somebody else" in lab.mend_node(gpu_node)[0]
    assert _package(lab, gpu_node, "libnccl2") == "2.30.7-1+cuda13.3"
    lab.run(
        gpu_node,
        *("apt-get", "-qq", "install", "-y", "--allow-downgrades", "--allow-change-held-packages"),
        "libnccl2=2.28.9-1+cuda13.0",
    )


def test_a_version_fault_that_somebody_else_mended_is_over_and_can_be_made_again(
    lab: testing.FreshLab, gpu_node: str
) -> None:
    def broken() -> tuple[marks.Kind, ...]:
        return next(found.faults for found in labs.status(lab.state).nodes if found.node.name == gpu_node)

    lab.break_node(gpu_node, faults.Kind.OTHER_VERSION)
    assert broken() == (faults.Kind.OTHER_VERSION,)
    with pytest.raises(errors.RefusedError, match="broken by other-version already"):
        lab.break_node(gpu_node, faults.Kind.OTHER_VERSION)
    install = ("apt-get", "-qq", "install", "-y", "--allow-downgrades", "--allow-change-held-packages")
    lab.run(gpu_node, *install, "libnccl2=2.28.9-1+cuda13.0")
    assert broken() == ()
    assert "other-version" not in lab.lockstep("lab", "status", "--lab", str(lab.state)).stdout
    lab.power_off(gpu_node)
    assert broken() == (), "a node that is off has a status too"
    lab.power_on(gpu_node)
    lab.break_node(gpu_node, faults.Kind.OTHER_VERSION)
    assert broken() == (faults.Kind.OTHER_VERSION,)
    lab.mend_node(gpu_node)
    assert _package(lab, gpu_node, "libnccl2") == "2.28.9-1+cuda13.0"


def test_the_command_line_breaks_mends_and_knows_the_kinds(lab: testing.FreshLab, gpu_node: str) -> None:
    where = ("--lab", str(lab.state))
    done = lab.lockstep("lab", "break", gpu_node, "gpu-lost", *where)
    assert (done.returncode, "fell off the bus" in done.stdout) == (0, True), done.stderr
    assert "gpu-lost" in lab.lockstep("lab", "status", *where).stdout
    assert lab.lockstep("lab", "break", gpu_node, "gpu-lost", *where).returncode == 4
    unknown = lab.lockstep("lab", "break", gpu_node, "gremlins", *where)
    assert (unknown.returncode, "smi-hangs" in unknown.stderr) == (2, True)
    done = lab.lockstep("lab", "mend", "--all", *where)
    assert (done.returncode, "gpu3 is back on the bus" in done.stdout) == (0, True)
    assert lab.lockstep("lab", "mend", "--all", *where).stdout == "nothing was broken\n"
