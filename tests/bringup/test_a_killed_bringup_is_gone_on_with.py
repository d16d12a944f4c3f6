"""kill -9 in the middle, again and again: the same command goes on, nothing is done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from lab import faults, testing
from tests.bringup import acting

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.FreshLab]:
    with testing.fresh_lab(tmp_path_factory.mktemp("lab"), pools=[testing.LabPool(nodes=3, budget="1")]) as made:
        yield made


def test_killed_while_packages_are_installed(lab: testing.FreshLab) -> None:
    with acting.running(lab, "bringup", str(lab.fleet_file)) as run:
        run.wait_for("driver", "Packages of the lock")
        run.kill()
    with acting.book(lab) as book:
        assert [attempt.stage for attempt in book.runs.interrupted().values()] == ["driver"]


def test_killed_while_it_reboots(lab: testing.FreshLab) -> None:
    with acting.running(lab, "bringup", str(lab.fleet_file)) as run:
        run.wait_for("driver", "rebooting 1 node")
        run.kill()


def test_killed_before_it_is_admitted(lab: testing.FreshLab) -> None:
    canary = lab.nodes[0]
    with acting.running(lab, "bringup", str(lab.fleet_file)) as run:
        run.wait_for(canary, "verify", "done")
        run.kill()
    with acting.book(lab) as book:
        assert book.admissions() == {}


def test_a_node_that_dies_in_the_middle_stops_no_other(lab: testing.FreshLab) -> None:
    canary, second, third = lab.nodes
    boot = lab.boot_id(canary)
    with acting.running(lab, "bringup", str(lab.fleet_file)) as run:
        run.wait_for("wave of 3")
        run.wait_for("driver", "Repositories of the fleet")
        lab.break_node(third, faults.Kind.NODE_DEAD)
        run.process.wait()
    text = "\n".join(run.lines)
    assert run.process.returncode == 5, text
    assert "2 admitted, 1 failed" in text
    assert f"{third}: failed" in text
    assert lab.boot_id(canary) == boot, "the canary was in step since the run before: it was not rebooted again"
    assert acting.admission(lab, second) is not None


def test_the_dead_node_is_brought_up_once_it_lives_again(lab: testing.FreshLab) -> None:
    lab.mend_node(lab.nodes[2])
    done = acting.bringup(lab)
    assert done.returncode == 0, acting.said(done)
    assert "2 in-step, 1 admitted" in done.stdout
    with acting.book(lab) as book:
        admitted = Counter(row.node for row in book.runs.attempts() if row.stage == "admit" and row.outcome == "done")
        assert book.runs.interrupted() == {}
    assert admitted == dict.fromkeys(lab.nodes, 1), "each node was admitted once"
    assert acting.left_in_memory() == []
