"""Real lab nodes, broken through the node: every kind of fault shows with node, coordinate, expected and observed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bringup import audit, reading
from bringup.transport.base import Patience
from lab import faults, nodes, testing
from lockstep.base.errors import ExitCode
from pinsets.findings import Verdict
from tests.bringup import answers

pytestmark = pytest.mark.lab

PATIENCE = Patience(connect_seconds=2, login_seconds=6, script_seconds=15, command_seconds=10, host_seconds=20)
STEP_SECONDS = 120
"""Until a node that was rebooted or mended answers, on a machine busy with other tests."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.FreshLab]:
    """Two nodes on which everything of the lock is installed and runs, without our own bring-up."""
    packages = [f"{package.name}={package.version}" for package in answers.lock().packages]
    with testing.fresh_lab(tmp_path_factory.mktemp("lab"), nodes=2) as fresh:
        for name in fresh.nodes:
            fresh.run(name, "apt-get", "update", "-qq")
            fresh.run(name, "apt-get", "install", "-y", "-qq", "--allow-downgrades", *packages)
            fresh.run(name, "apt-mark", "hold", *(package.partition("=")[0] for package in packages))
            before = fresh.boot_id(name)
            fresh.run(name, "reboot", check=False)
            _until(lambda name=name, before=before: fresh.alive(name) and fresh.boot_id(name) not in (None, before))
        _until(lambda: audit.exit_code(_audit(fresh)) is ExitCode.IN_STEP)
        yield fresh


def _until(condition: object) -> None:
    limit = time.monotonic() + STEP_SECONDS
    while not condition():  # type: ignore[operator]
        if time.monotonic() > limit:
            pytest.fail(f"not so after {STEP_SECONDS} s")
        time.sleep(0.5)


def _audit(lab: testing.FreshLab) -> audit.Audit:
    fleet = lab.fleet()
    return audit.of_fleet(fleet, reading.read_fleet(fleet, lab.settings, patience=PATIENCE, store=False))


def _deviations(found: audit.Audit, node: str) -> Mapping[str, tuple[str, str]]:
    result = found.pools[0].comparison.nodes[node]  # type: ignore[index]
    return {word: (observed, expected) for word, observed, expected in audit.deviations(result)}


@pytest.fixture
def broken(lab: testing.FreshLab, request: pytest.FixtureRequest) -> Iterator[audit.Audit]:
    """The audit while the second node has the fault that the test names; mended and in step again afterwards."""
    node = lab.nodes[1]
    lab.break_node(node, faults.Kind(request.param))
    try:
        yield _audit(lab)
    finally:
        lab.mend_node(node)
        _until(lambda: audit.exit_code(_audit(lab)) is ExitCode.IN_STEP)


def _second(lab: testing.FreshLab, found: audit.Audit) -> Verdict:
    first, second = lab.nodes
    nodes_ = found.pools[0].comparison.nodes
    assert nodes_[first].verdict is Verdict.ADMIT, "the other node is not touched by it"  # type: ignore[index]
    return nodes_[second].verdict  # type: ignore[index]


@pytest.mark.parametrize("broken", ["other-version"], indirect=True)
def test_another_version_is_named_with_what_was_expected(lab: testing.FreshLab, broken: audit.Audit) -> None:
    assert _second(lab, broken) is Verdict.DRIFTED
    observed, expected = _deviations(broken, lab.nodes[1])["nccl@library"]
    assert expected == answers.lock_version("nccl")
    assert not observed.startswith(expected)
    assert audit.exit_code(broken) is ExitCode.DRIFT


@pytest.mark.parametrize("broken", ["upgraded-not-rebooted"], indirect=True)
def test_an_upgrade_without_a_reboot_shows_as_disk_against_running(lab: testing.FreshLab, broken: audit.Audit) -> None:
    found = _deviations(broken, lab.nodes[1])
    assert "driver@ondisk" in found
    assert "driver@running" not in found
    assert audit.exit_code(broken) is ExitCode.DRIFT


@pytest.mark.parametrize("broken", ["gpu-firmware"], indirect=True)
def test_the_firmware_of_one_gpu_is_named_by_its_slot(lab: testing.FreshLab, broken: audit.Audit) -> None:
    assert _second(lab, broken) is Verdict.DRIFTED
    (word,) = _deviations(broken, lab.nodes[1])
    assert word.startswith("firmware.gpu[gpu")


@pytest.mark.parametrize("broken", ["gpu-lost"], indirect=True)
def test_a_gpu_that_fell_off_the_bus_is_missing_in_its_slot(lab: testing.FreshLab, broken: audit.Audit) -> None:
    assert audit.exit_code(broken) is ExitCode.DRIFT
    found = _deviations(broken, lab.nodes[1])
    assert any(word.startswith("gpu[gpu") and "missing" in observed for word, (observed, _) in found.items())


@pytest.mark.parametrize(
    ("broken", "reason"),
    [("sshd-hung", "no banner"), ("node-dead", "refused"), ("host-key", "host key changed")],
    indirect=["broken"],
)
def test_a_node_that_cannot_be_read_is_unreachable_with_its_reason(
    lab: testing.FreshLab, broken: audit.Audit, reason: str
) -> None:
    assert _second(lab, broken) is Verdict.UNREACHABLE
    observed, _ = _deviations(broken, lab.nodes[1])["unreachable"]
    assert observed.startswith(reason)
    assert audit.exit_code(broken) is ExitCode.NOT_MEASURED


@pytest.mark.parametrize("broken", ["nccl-shadowed"], indirect=True)
def test_another_nccl_before_the_package_s_drifts_as_library_and_not_as_package(
    lab: testing.FreshLab, broken: audit.Audit
) -> None:
    assert _second(lab, broken) is Verdict.DRIFTED
    found = _deviations(broken, lab.nodes[1])
    assert "nccl@library" in found
    assert "nccl@package" not in found
    attributes = broken.pools[0].facts[lab.nodes[1]].attributes  # type: ignore[index]
    assert attributes["nccl.file"].startswith("/usr/local/lib/")


@pytest.mark.parametrize("broken", ["hold-removed"], indirect=True)
def test_a_package_that_is_no_longer_held_drifts_at_its_package(lab: testing.FreshLab, broken: audit.Audit) -> None:
    assert _second(lab, broken) is Verdict.DRIFTED
    attributes = broken.pools[0].facts[lab.nodes[1]].attributes  # type: ignore[index]
    assert attributes["hold.nccl"] == "no"
    observed, expected = _deviations(broken, lab.nodes[1])["nccl@package"]
    assert "held" in expected
    assert "not held" in observed


@pytest.mark.parametrize("broken", ["disk-full"], indirect=True)
def test_a_full_disk_blocks_the_node_and_is_named(lab: testing.FreshLab, broken: audit.Audit) -> None:
    attributes = broken.pools[0].facts[lab.nodes[1]].attributes  # type: ignore[index]
    assert int(attributes["disk./tmp.used"]) >= 98
    assert _second(lab, broken) is not Verdict.ADMIT
    assert any("/tmp" in observed for observed, _ in _deviations(broken, lab.nodes[1]).values())


@pytest.mark.parametrize("broken", ["smi-hangs"], indirect=True)
def test_an_nvidia_smi_that_hangs_makes_the_node_unreadable_and_all_else_is_read(
    lab: testing.FreshLab, broken: audit.Audit
) -> None:
    assert _second(lab, broken) is Verdict.UNREADABLE
    facts = broken.pools[0].facts[lab.nodes[1]]  # type: ignore[index]
    told = {str(coordinate): str(fact.observation) for coordinate, fact in facts.facts.items()}
    assert "no answer in 10 s" in told["firmware.gpu[gpu0]@running"]
    assert told["driver@running"] == answers.lock_version("driver")
    assert audit.exit_code(broken) is ExitCode.NOT_MEASURED


def test_nothing_is_left_on_the_node_and_serial_boot_and_holders_are_read(lab: testing.FreshLab) -> None:
    node = lab.nodes[0]
    found = _audit(lab)
    facts = found.pools[0].facts[node]  # type: ignore[index]
    assert facts.boot_id == lab.boot_id(node)
    assert facts.serial
    assert facts.busy == ()
    assert facts.admission is None
    assert lab.run(node, "ls", "-A", "/dev/shm").stdout == ""
    holder = subprocess.Popen(nodes.enter(lab.state, node, ["sh", "-c", "exec 3</dev/nvidia0; sleep 300"]))
    try:
        _until(lambda: (_audit(lab).pools[0].facts[node].busy or ()) != ())  # type: ignore[index]
    finally:
        lab.run(
            node,
            "sh",
            "-c",
            'for f in /proc/[0-9]*; do [ "$(readlink $f/fd/3)" = /dev/nvidia0 ] && kill ${f#/proc/}; done; true',
        )
        holder.kill()
        holder.wait()


def test_two_readings_after_one_another_agree(lab: testing.FreshLab) -> None:
    first, second = _audit(lab), _audit(lab)
    assert first.pools[0].comparison == second.pools[0].comparison


def test_the_lab_is_read_by_the_command_too(lab: testing.FreshLab, tmp_path: Path) -> None:
    done = lab.lockstep("audit", str(lab.fleet_file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 nodes: 2 admit" in done.stdout
