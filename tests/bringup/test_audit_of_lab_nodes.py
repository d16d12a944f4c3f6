"""A lab with every kind of `lab break` at once: one audit names each; mended, it is in step again.

One lab, in this order: the tests before the breaks need every node in step.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bringup import audit, reading, stored
from bringup.transport.base import Patience
from lab import nodes, testing
from lab.faults import Kind
from lockstep.base.errors import ExitCode
from lockstep.base.names import NodeName
from pinsets import snapshots
from pinsets.facts import NodeFacts
from tests.bringup import answers, watching
from tests.bringup.breaks import SHOWN

pytestmark = pytest.mark.lab

T = TypeVar("T")
PATIENCE = Patience(connect_seconds=2, login_seconds=6, script_seconds=15, command_seconds=10, host_seconds=20)
STEP_SECONDS = 120
"""Until a node that was rebooted or mended answers, on a machine busy with other tests."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.FreshLab]:
    """A node for each kind and one that stays whole, all with the lock installed and running, without our bring-up."""
    packages = [f"{package.name}={package.version}" for package in answers.lock().packages]
    with testing.fresh_lab(tmp_path_factory.mktemp("lab"), nodes=1 + len(Kind)) as fresh:

        def prepare(name: str) -> None:
            fresh.run(name, "apt-get", "update", "-qq")
            fresh.run(name, "apt-get", "install", "-y", "-qq", "--allow-downgrades", *packages)
            fresh.run(name, "apt-mark", "hold", *(package.partition("=")[0] for package in packages))
            before = fresh.boot_id(name)
            fresh.run(name, "reboot", check=False)
            _until(lambda: fresh.alive(name) and fresh.boot_id(name) not in (None, before))

        _on_each(prepare, fresh.nodes)
        _until(lambda: audit.exit_code(_audit(fresh)) is ExitCode.IN_STEP)
        yield fresh


def _on_each(what: Callable[[T], None], things: Iterable[T]) -> None:
    with ThreadPoolExecutor(3) as crew:
        list(crew.map(what, things))


def _until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + STEP_SECONDS
    while not condition():
        if time.monotonic() > limit:
            pytest.fail(f"not so after {STEP_SECONDS} s")
        time.sleep(0.5)


def _audit(lab: testing.FreshLab) -> audit.Audit:
    fleet = lab.fleet()
    return audit.of_fleet(fleet, reading.read_fleet(fleet, lab.settings, patience=PATIENCE, store=False))


def test_every_kind_that_the_lab_can_break_has_its_words() -> None:
    assert set(SHOWN) == set(Kind)


def test_two_readings_after_one_another_agree(lab: testing.FreshLab) -> None:
    first, second = _audit(lab), _audit(lab)
    assert first.pools[0].comparison == second.pools[0].comparison


def test_nothing_is_left_on_the_node_and_serial_boot_and_holders_are_read(lab: testing.FreshLab) -> None:
    node = NodeName(lab.nodes[0])
    facts = _audit(lab).pools[0].facts[node]
    assert facts.boot_id == lab.boot_id(node)
    assert facts.serial
    assert facts.busy == ()
    assert facts.admission is None
    assert lab.run(node, "ls", "-A", "/dev/shm").stdout == ""
    holder = subprocess.Popen(nodes.enter(lab.state, node, ["sh", "-c", "exec 3</dev/nvidia0; sleep 300"]))
    try:
        _until(lambda: (_audit(lab).pools[0].facts[node].busy or ()) != ())
    finally:
        lab.run(
            node,
            "sh",
            "-c",
            'for f in /proc/[0-9]*; do [ "$(readlink $f/fd/3)" = /dev/nvidia0 ] && kill ${f#/proc/}; done; true',
        )
        holder.kill()
        holder.wait()


def test_a_watch_shows_drift_while_it_lasts_and_keeps_nothing_of_a_node_that_died(
    lab: testing.FreshLab, tmp_path: Path
) -> None:
    whole, odd = lab.nodes[:2]
    file = tmp_path / "lockstep.prom"
    words = [str(lab.fleet_file), "--node", whole, "--node", odd, "--timeout", "10"]
    drift = ("pin.nccl", "nccl@library")
    with watching.watching(words, file, lab.env, lab.state) as watch:
        watch.until(lambda: len(watch.times) > 1)
        assert watch.deviating() == {}
        lab.break_node(odd, Kind.OTHER_VERSION)
        watch.until(lambda: watch.deviating() == {odd: "drifted"})
        assert drift in watch.findings()
        lab.break_node(odd, Kind.NODE_DEAD)
        watch.until(lambda: watch.deviating() == {odd: "unreachable"})
        assert watch.findings() == {("unreachable", "")}, "nothing of what it said when it lived"
        lab.mend_node(odd)
        watch.until(lambda: watch.deviating() == {})
        assert watch.times == sorted(watch.times)
        assert len(watch.files) >= len(watch.times) > 4, "each round put a new file in its place"
        watch.process.terminate()
        assert watch.process.wait(30) == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == [file], "no half of a next one is left"
    watching.assert_whole(file.read_text())


@dataclass(frozen=True)
class Broken:
    """The lab with every kind at once, as one run of the command shows it."""

    lab: testing.FreshLab
    code: int
    pool: Mapping[str, Any]
    facts: Mapping[NodeName, NodeFacts]
    """As the command stored them."""

    def node(self, kind: Kind) -> str:
        """The one that is broken so; the first node stays whole."""
        return _victims(self.lab)[kind]

    def verdict(self, name: str) -> str:
        """Of a node."""
        found: str = next(node["verdict"] for node in self.pool["nodes"] if node["name"] == name)
        return found

    def findings(self, name: str) -> list[dict[str, Any]]:
        """Those that name a node."""
        return [finding for finding in self.pool["findings"] if name in finding["nodes"]]

    def read(self, kind: Kind) -> NodeFacts:
        """What was read of that node."""
        return self.facts[NodeName(self.node(kind))]


def _victims(lab: testing.FreshLab) -> dict[Kind, str]:
    return dict(zip(Kind, lab.nodes[1:], strict=True))


@pytest.fixture(scope="module")
def broken(lab: testing.FreshLab) -> Broken:
    """Everything is broken, then `lockstep audit` runs once."""

    def hit(pair: tuple[Kind, str]) -> None:
        kind, name = pair
        lab.break_node(name, kind, **SHOWN[kind].options)

    _on_each(hit, _victims(lab).items())
    # Half of the usual patience: a node that says nothing is asked twice.
    done = lab.lockstep("audit", str(lab.fleet_file), "--timeout", "16", "--format", "json")
    assert done.stdout, done.stderr
    (pool,) = json.loads(done.stdout)["pools"]
    kept = stored.latest(lab.settings, lab.fleet().name)
    assert kept is not None
    return Broken(lab, done.returncode, pool, snapshots.read(kept).nodes)


def test_one_audit_of_a_lab_broken_in_every_way_names_no_node_that_is_whole(broken: Broken) -> None:
    assert broken.code == ExitCode.DRIFT
    whole = broken.lab.nodes[0]
    assert broken.verdict(whole) == "admit"
    assert [finding for finding in broken.findings(whole) if finding["severity"] != "info"] == []


@pytest.mark.parametrize("kind", Kind)
def test_it_names_each_kind_by_node_verdict_finding_observed_and_expected(broken: Broken, kind: Kind) -> None:
    shown, name = SHOWN[kind], broken.node(kind)
    assert broken.verdict(name) == shown.verdict
    found = [
        finding
        for finding in broken.findings(name)
        if finding["id"] == shown.id
        and re.fullmatch(shown.word, finding["coordinate"] or finding["id"])
        and re.search(shown.observed, finding["observed"])
        and (shown.expected is None or re.search(shown.expected, finding["expected"]))
    ]
    assert len(found) == 1, broken.findings(name)
    assert found[0]["nodes"] == [name]
    assert found[0]["remedy"]


def test_what_lies_beside_each_fault_is_read_all_the_same(broken: Broken) -> None:
    def told(kind: Kind) -> dict[str, str]:
        return {str(place): str(fact.observation) for place, fact in broken.read(kind).facts.items()}

    def coordinates(kind: Kind) -> set[str]:
        return {finding["coordinate"] for finding in broken.findings(broken.node(kind))}

    assert "driver@running" not in coordinates(Kind.UPGRADED_NOT_REBOOTED), "only what is on disk is another one"
    assert "nccl@package" not in coordinates(Kind.NCCL_SHADOWED), "the package is the right one"
    assert broken.read(Kind.NCCL_SHADOWED).attributes["nccl.file"].startswith("/usr/local/lib/")
    assert broken.read(Kind.HOLD_REMOVED).attributes["hold.nccl"] == "no"
    assert int(broken.read(Kind.DISK_FULL).attributes["disk./tmp.used"]) >= 98
    assert told(Kind.SMI_HANGS)["driver@running"] == answers.lock_version("driver")
    assert [word for word in coordinates(Kind.GPU_FIRMWARE) if word and "gpu" in word] == [
        "firmware.gpu[gpu1]@running"
    ], "the other three are as they should be"


def test_mended_all_at_once_the_lab_is_in_step_again(broken: Broken) -> None:
    lab = broken.lab
    mended = lab.lockstep("lab", "mend", "--all")
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert {line.partition(":")[0] for line in mended.stdout.splitlines()} == set(_victims(lab).values())
    _until(lambda: audit.exit_code(_audit(lab)) is ExitCode.IN_STEP)
    done = lab.lockstep("audit", str(lab.fleet_file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(lab.nodes)} nodes: {len(lab.nodes)} admit" in done.stdout
