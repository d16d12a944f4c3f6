"""The full walk: killed at every step that the journal has, the same command ends in step and repeats nothing."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import testing
from lockstep.base import journal
from tests.bringup import acting

from .conftest import copy_of
from .environments import LOCKSTEP, MINUTES, Environment, Watch, acting_below, engine_of, gone, kill

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.engine, pytest.mark.cluster, pytest.mark.timeout(3600)]

NODES = 2
STAGES = ("driver", "join", "verify", "admit")


@pytest.fixture
def environment(tmp_path: Path, checkout: Path) -> Iterator[Environment]:
    """Fresh nodes, brought up one after the other: the canary, then the rest."""
    copied = copy_of(checkout, tmp_path / "check out")
    pools = [testing.LabPool(nodes=NODES, budget="1")]
    with testing.fresh_lab(tmp_path, pools=pools, control_plane=True) as lab:
        yield Environment(lab, copied, {**lab.env, "LOCKSTEP_ROOT": str(copied)}, str(lab.fleet_file))


def steps(lab: testing.FreshLab) -> set[tuple[str, str, str]]:
    """(node, stage, begun or done) of everything that the journal knows."""
    if not (lab.state / "journal.db").exists():
        return set()
    with acting.book(lab) as book:
        attempts = book.runs.attempts()
    found = {(one.node, one.stage, "begun") for one in attempts}
    return found | {(one.node, one.stage, "done") for one in attempts if one.outcome is journal.AttemptOutcome.DONE}


def test_killed_at_every_step_it_ends_in_step_and_repeats_nothing(environment: Environment) -> None:
    lab = environment.lab
    walked: set[tuple[str, str, str]] = set()
    kills = 0
    with Watch(lab) as watch:
        while True:
            running = environment.start(LOCKSTEP, "up", environment.fleet)
            limit = time.monotonic() + 10 * MINUTES
            while running.poll() is None and not steps(lab) - walked:
                assert time.monotonic() < limit, f"nothing new after {len(walked)} steps"
                time.sleep(0.05)
            if running.poll() is not None:
                break
            walked |= steps(lab)
            kills += 1
            # In turn: the engine under `lockstep up`, and `lockstep up` over the engine, which then ends too.
            engine = engine_of(running.pid)
            if kills % 2:
                kill(engine)
            else:
                below = acting_below(engine)
                os.kill(running.pid, signal.SIGKILL)
                gone(below)
            running.communicate()
            assert running.returncode != 0
    said, _ = running.communicate()
    assert running.returncode == 0, said
    assert walked >= {(node, stage, "begun") for node in lab.nodes for stage in STAGES}
    assert kills >= len(STAGES) * NODES
    with acting.book(lab) as book:
        assert book.runs.interrupted() == {}
        assert book.fences() == {}
        done = Counter(
            (one.node, one.stage) for one in book.runs.attempts() if one.outcome is journal.AttemptOutcome.DONE
        )
    assert {node: done[node, "admit"] for node in lab.nodes} == dict.fromkeys(lab.nodes, 1)
    assert {node: len(boots) for node, boots in watch.boots.items()} == dict.fromkeys(lab.nodes, 2)
    assert acting.left_in_memory() == []
    before = environment.machines()
    environment.up()
    assert environment.machines() == before
