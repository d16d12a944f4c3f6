"""Replacement from end to end on lab nodes: refused for a healthy node, killed three times, equal at the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import faults, testing
from tests.bringup import acting

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.FreshLab]:
    folder = tmp_path_factory.mktemp("lab")

    def slow_off(text: str) -> str:
        """A power-off that takes its time, so that a run can be killed before the power is off."""
        slow = folder / "slow-off"
        slow.write_text('#!/bin/sh\nsleep 3\nexec "$@"\n')
        slow.chmod(0o755)
        program = Path(sys.executable).with_name("lockstep")
        return text.replace(f"off: [{program}", f"off: [{slow}, {program}")

    pool = testing.LabPool(nodes=2, wait="1s", budget="100%")
    with testing.fresh_lab(folder, pools=[pool], edit=slow_off) as made:
        done = acting.bringup(made)
        assert done.returncode == 0, acting.said(done)
        yield made


def replace(lab: testing.FreshLab, node: str, *options: str) -> list[str]:
    return ["replace", str(lab.fleet_file), node, *options]


def test_a_healthy_node_is_refused_and_not_touched(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    boot = lab.boot_id(node)
    without = lab.lockstep(*replace(lab, node))
    allowed = lab.lockstep(*replace(lab, node, "--allow", "reimage"))
    assert without.returncode == 4, acting.said(without)
    assert "needs kind reimage" in without.stderr
    assert allowed.returncode == 4, acting.said(allowed)
    assert "does not look failed" in allowed.stderr
    assert lab.boot_id(node) == boot
    with acting.book(lab) as book:
        assert book.runs.open_replacements() == frozenset()


def test_a_busy_node_that_is_named_is_not_powered_off(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    boot = lab.boot_id(node)
    with acting.gpu_held(lab, node):
        done = lab.lockstep(*replace(lab, node, "--allow", f"reimage={node}"))
    assert done.returncode == 4, acting.said(done)
    assert "a process holds a GPU" in done.stderr
    assert lab.boot_id(node) == boot


def test_killed_before_power_off_the_machine_is_still_on(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    boot = lab.boot_id(node)
    with acting.running(lab, *replace(lab, node, "--allow", f"reimage={node}")) as run:
        run.wait_for("replace", "powered-off")
        run.kill()
    assert lab.boot_id(node) == boot


def test_up_leaves_a_node_that_is_being_replaced_alone(lab: testing.FreshLab) -> None:
    done = acting.bringup(lab)
    assert done.returncode == 0, acting.said(done)
    assert "is being replaced" in done.stdout


def test_killed_during_the_stages(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    with acting.book(lab) as book:
        old = book.host_keys(node)
    # No word is needed any more: the journal holds what was allowed.
    with acting.running(lab, *replace(lab, node)) as run:
        run.wait_for("cordoned: done before")
        run.wait_for("driver", "Packages of the lock")
        run.kill()
    with acting.book(lab) as book:
        new = book.host_keys(node)
    assert old is not None
    assert new is not None
    assert (old.generation, new.generation) == (1, 2)
    assert not set(old.keys) & set(new.keys), "the old machine's key is refused"
    assert acting.admission(lab, node) is None


def test_killed_before_it_rejoins(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    with acting.running(lab, *replace(lab, node)) as run:
        run.wait_for("reimaged: done before")
        run.wait_for("verify", "done")
        run.kill()
    assert acting.admission(lab, node) is None


def test_the_same_command_ends_it_and_the_versions_are_its_predecessors(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    with acting.book(lab) as book:
        before = book.admissions()[node]
    done = lab.lockstep(*replace(lab, node))
    assert done.returncode == 0, acting.said(done)
    with acting.book(lab) as book:
        after = book.admissions()[node]
        assert book.runs.open_replacements() == frozenset()
        assert book.fences() == {}
    assert after.generation == 2
    assert after.serial != before.serial
    assert after.versions == before.versions
    file = acting.admission(lab, node)
    assert file is not None
    assert (file["serial"], file["generation"]) == (after.serial, 2)
    assert lab.fleet().node(node).generation == 2  # type: ignore[union-attr]
    assert lab.fleet().node(lab.nodes[0]).generation == 1  # type: ignore[union-attr]


def test_the_fleet_is_in_step_afterwards(lab: testing.FreshLab) -> None:
    done = acting.bringup(lab)
    assert done.returncode == 0, acting.said(done)
    assert "2 in-step" in done.stdout


def test_a_dead_node_needs_only_the_kind_and_the_patch_can_be_printed(lab: testing.FreshLab) -> None:
    node = lab.nodes[0]
    lab.break_node(node, faults.Kind.NODE_DEAD)
    text = lab.fleet_file.read_text()
    done = lab.lockstep(*replace(lab, node, "--allow", "reimage", "--print-patch"))
    assert done.returncode == 0, acting.said(done)
    assert "generation: 2" in done.stdout
    assert lab.fleet_file.read_text() == text
    behind = acting.bringup(lab)
    assert behind.returncode == 4, acting.said(behind)
    assert "generation: 2" in behind.stderr
    patched = subprocess.run(["git", "apply", "-"], input=done.stdout, text=True, cwd=lab.fleet_file.parent)
    assert patched.returncode == 0


def test_a_generation_bumped_by_hand_asks_for_replace(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    text = lab.fleet_file.read_text()
    lab.fleet_file.write_text(text.replace("generation: 2", "generation: 3"))
    done = acting.bringup(lab)
    lab.fleet_file.write_text(text)
    assert done.returncode == 4, acting.said(done)
    assert f"run lockstep replace FLEET {node}" in done.stderr
