"""Replacement from end to end on lab nodes: refused for a healthy node, killed three times, equal at the end."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inventory import editing
from lab import faults, testing
from tests.bringup import acting

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.FreshLab]:
    folder = tmp_path_factory.mktemp("lab")

    def slow_off(text: str) -> str:
        """A power-off that takes its time and is not done when its caller was killed meanwhile."""
        slow = folder / "slow-off"
        slow.write_text('#!/bin/sh\ncaller=$PPID\nsleep 3\nkill -0 $caller && exec "$@"\n')
        slow.chmod(0o755)
        program = Path(sys.executable).with_name("lockstep")
        return text.replace(f"off: [{program}", f"off: [{slow}, {program}")

    pool = testing.LabPool(nodes=2, wait="1s", budget="100%")
    with testing.fresh_lab(folder, pools=[pool], edit=slow_off) as made:
        done = acting.bringup(made)
        assert done.returncode == 0, acting.said(done)
        yield made


KEY = "/etc/ssh/ssh_host_ed25519_key"


@pytest.fixture(scope="module")
def old_key(lab: testing.FreshLab) -> dict[str, str]:
    """The second node's host key pair, taken before it is replaced."""
    return {name: lab.run(lab.nodes[1], "cat", name).stdout for name in (KEY, f"{KEY}.pub")}


def _show_host_key(lab: testing.FreshLab, node: str, pair: dict[str, str]) -> None:
    """Have the node's sshd show another key; its own is kept beside as ``.new``."""
    for name, text in pair.items():
        lab.run(node, "sh", "-c", 'mv "$1" "$1.new"; umask 077; printf %s "$2" >"$1"', "sh", name, text)
    lab.run(node, "sh", "-c", "kill -HUP $(cat /run/sshd.pid)")


@contextlib.contextmanager
def _recorded(lab: testing.FreshLab, node: str, coordinate: str, value: str) -> Iterator[None]:
    """The journal's newest admission of the node says another version, for the length of the block."""
    with sqlite3.connect(lab.state / "journal.db") as database:
        number, text = database.execute(
            "SELECT id, versions FROM admissions WHERE node = ? ORDER BY id DESC", (node,)
        ).fetchone()
        changed = json.dumps(json.loads(text) | {coordinate: value})
        database.execute("UPDATE admissions SET versions = ? WHERE id = ?", (changed, number))
    database.close()
    try:
        yield
    finally:
        with sqlite3.connect(lab.state / "journal.db") as database:
            database.execute("UPDATE admissions SET versions = ? WHERE id = ?", (text, number))
        database.close()


def replace(lab: testing.FreshLab, node: str, *options: str) -> list[str]:
    return ["replace", str(lab.fleet_file), node, *options]


@pytest.mark.usefixtures("old_key")
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
    assert lab.alive(node)
    assert lab.boot_id(node) == boot


def test_up_leaves_a_node_that_is_being_replaced_alone(lab: testing.FreshLab) -> None:
    done = acting.bringup(lab)
    assert done.returncode == 0, acting.said(done)
    assert "is being replaced" in done.stdout


def test_killed_during_the_stages(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    with acting.book(lab) as book:
        old = book.host_keys(node)
        # As if it had been off, and somebody had switched it on while nobody looked.
        (slot,) = book.runs.open_replacements()
        found = book.runs.open_replacement(slot)
        assert found is not None
        book.runs.step_done(found.id, "powered-off", {"state": "off"})
    # No word is needed any more: the journal holds what was allowed.
    with acting.running(lab, *replace(lab, node)) as run:
        run.wait_for("cordoned: done before")
        run.wait_for("was switched on again: powered off once more")
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


def test_versions_that_differ_from_the_predecessors_may_not_rejoin(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    with _recorded(lab, node, "nccl@package", "2.27.7"):
        done = lab.lockstep(*replace(lab, node))
    assert done.returncode == 4, acting.said(done)
    assert "may not rejoin" in done.stderr
    assert "nccl@package is 2.28.9" in done.stderr
    assert "predecessor 2.27.7" in done.stderr
    assert acting.admission(lab, node) is None
    with acting.book(lab) as book:
        assert node in book.fences()
        assert book.runs.open_replacements()


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


def test_the_old_machines_host_key_is_refused(lab: testing.FreshLab, old_key: dict[str, str]) -> None:
    node = lab.nodes[1]
    _show_host_key(lab, node, old_key)
    done = acting.bringup(lab)
    assert done.returncode == 3, acting.said(done)
    assert f"{node}: unreachable" in done.stdout
    assert "host key changed" in done.stdout


def test_the_new_machines_host_key_is_accepted(lab: testing.FreshLab) -> None:
    node = lab.nodes[1]
    lab.run(node, "sh", "-c", "cd /etc/ssh && for f in ssh_host_ed25519_key*.new; do mv $f ${f%.new}; done")
    lab.run(node, "sh", "-c", "kill -HUP $(cat /run/sshd.pid)")
    with acting.book(lab) as book:
        keys = book.host_keys(node)
    assert keys is not None
    assert keys.origin == "reimage"


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
    lab.fleet_file.write_text(editing.update_node(text, node, {"generation": 3}, place="fleet.yaml"))
    done = acting.bringup(lab)
    lab.fleet_file.write_text(text)
    assert done.returncode == 4, acting.said(done)
    assert f"run lockstep replace FLEET {node}" in done.stderr
