"""Two nodes and a spare from fresh to admitted, then what may and may not be done to them. One lab, in this order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import faults, testing
from lockstep.base import journal
from tests.bringup import acting

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

DRIVER = "580.105.08-1"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.FreshLab]:
    pool = testing.LabPool(nodes=3, spares=1, wait="1s", budget="1")
    with testing.fresh_lab(tmp_path_factory.mktemp("lab"), pools=[pool]) as made:
        yield made


@pytest.fixture(scope="module")
def up(lab: testing.FreshLab) -> testing.FreshLab:
    """All nodes brought into step once."""
    done = acting.bringup(lab)
    assert done.returncode == 0, acting.said(done)
    assert "2 admitted, 1 staged" in done.stdout
    assert "burnin: none" in done.stdout
    return lab


def test_every_node_runs_the_lock_and_holds_it(up: testing.FreshLab) -> None:
    for node in up.nodes:
        assert acting.package(up, node, "nvidia-kernel-open-dkms") == f"hi {DRIVER}"
        assert up.run(node, "cat", "/sys/module/nvidia/version").stdout.strip() == "580.105.08"
        assert up.run(node, "uname", "-r").stdout.strip() == "6.1.0-41-amd64"


def test_only_admitted_nodes_have_the_file_and_the_journal_has_every_coordinate(up: testing.FreshLab) -> None:
    first, second, spare = up.nodes
    with acting.book(up) as book:
        admitted = book.admissions()
        assigned = book.assignments()
    assert acting.admission(up, spare) is None
    assert set(admitted) == {first, second}
    for node in (first, second):
        file = acting.admission(up, node)
        assert file is not None
        assert (file["lock"], file["serial"]) == (admitted[node].lock, admitted[node].serial)
        assert admitted[node].versions["driver@running"] == "580.105.08"
        assert "firmware.gpu[gpu3]@running" in admitted[node].versions
        assert admitted[node].burnin == "none"
        assert assigned[node].previous is None


def test_reboots_are_proved_by_boot_ids_in_the_journal(up: testing.FreshLab) -> None:
    with acting.book(up) as book:
        driver = [attempt for attempt in book.runs.attempts() if attempt.stage == "driver"]
    assert {attempt.node for attempt in driver} == set(up.nodes)
    for attempt in driver:
        assert attempt.boot_before
        assert attempt.boot_after
        assert attempt.boot_before != attempt.boot_after
        assert attempt.outcome is journal.AttemptOutcome.DONE


def test_a_second_run_does_nothing_and_leaves_nothing_behind(up: testing.FreshLab) -> None:
    before = acting.boots(up)
    with acting.book(up) as book:
        attempts = len(book.runs.attempts())
    done = acting.bringup(up)
    assert done.returncode == 0, acting.said(done)
    assert "3 in-step" in done.stdout
    assert acting.boots(up) == before
    with acting.book(up) as book:
        assert len(book.runs.attempts()) == attempts
        assert book.fences() == {}
    assert acting.left_in_memory() == []


def test_a_drifted_node_that_is_busy_is_skipped_and_left_as_it_was(up: testing.FreshLab) -> None:
    node = up.nodes[0]
    up.break_node(node, faults.Kind.OTHER_VERSION, package="libnccl2", version="2.27.7-1+cuda13.0")
    before = acting.boots(up)
    with acting.gpu_held(up, node):
        done = acting.bringup(up)
    assert done.returncode == 4, acting.said(done)
    assert f"{node}: busy" in done.stdout
    assert "a process holds a GPU" in done.stdout
    assert acting.package(up, node, "libnccl2").endswith("2.27.7-1+cuda13.0")
    assert acting.boots(up) == before
    with acting.book(up) as book:
        assert node not in book.fences()


def test_without_consent_drift_is_reported_and_not_mended(up: testing.FreshLab) -> None:
    node = up.nodes[0]
    acting.edit_fleet(up, lambda text: text.replace("install, ", "", 1))
    done = acting.bringup(up)
    acting.edit_fleet(up, lambda text: text.replace("allow: [", "allow: [install, ", 1))
    assert done.returncode == 4, acting.said(done)
    assert f"{node}: forbidden" in done.stdout
    assert "needs install" in done.stdout
    assert "nccl@package: 2.27.7" in done.stdout
    assert acting.package(up, node, "libnccl2").endswith("2.27.7-1+cuda13.0")


def test_a_drifted_node_is_mended_by_policy_and_the_others_are_not_touched(up: testing.FreshLab) -> None:
    node, *others = up.nodes
    before = acting.boots(up)
    done = acting.bringup(up)
    assert done.returncode == 0, acting.said(done)
    assert "2 in-step, 1 mended" in done.stdout
    assert acting.package(up, node, "libnccl2") == "hi 2.28.9-1+cuda13.0"
    after = acting.boots(up)
    assert {name: after[name] for name in others} == {name: before[name] for name in others}


def test_firmware_is_said_and_not_mended(up: testing.FreshLab) -> None:
    node = up.nodes[1]
    up.break_node(node, faults.Kind.GPU_FIRMWARE, slot="gpu2")
    done = acting.bringup(up)
    up.mend_node(node)
    assert done.returncode == 1, acting.said(done)
    assert f"{node}: unmended" in done.stdout
    assert "firmware.gpu[gpu2]@running" in done.stdout


def test_a_changed_host_key_is_refused_and_the_node_named(up: testing.FreshLab) -> None:
    node = up.nodes[1]
    up.break_node(node, faults.Kind.HOST_KEY)
    done = acting.bringup(up)
    up.mend_node(node)
    assert done.returncode == 3, acting.said(done)
    assert f"{node}: unreachable" in done.stdout
    assert "host key changed" in done.stdout


def test_an_empty_journal_adopts_the_fleet_and_touches_nothing(up: testing.FreshLab) -> None:
    before = acting.boots(up)
    file = acting.admission(up, up.nodes[0])
    acting.forget(up)
    done = acting.bringup(up)
    assert done.returncode == 0, acting.said(done)
    assert "2 adopted" in done.stdout
    assert acting.boots(up) == before
    assert acting.admission(up, up.nodes[0]) == file
    with acting.book(up) as book:
        assert set(book.admissions()) == set(up.nodes[:2])
        assert book.admissions()[up.nodes[0]].versions["driver@running"] == "580.105.08"


def test_a_shrunk_pool_is_refused_until_the_number_is_repeated(up: testing.FreshLab) -> None:
    text = up.fleet_file.read_text()
    kept = [line for line in text.splitlines() if not line.strip().startswith(tuple(f"{n}:" for n in up.nodes[1:]))]
    up.fleet_file.write_text("\n".join(kept) + "\n")
    try:
        refused = acting.bringup(up)
        accepted = acting.bringup(up, "--shrink", "2")
    finally:
        up.fleet_file.write_text(text)
    assert refused.returncode == 4, acting.said(refused)
    assert "--shrink 2" in refused.stderr
    assert accepted.returncode == 0, acting.said(accepted)
    assert acting.admission(up, up.nodes[1]) is not None, "what left the file is forgotten, not wiped"
