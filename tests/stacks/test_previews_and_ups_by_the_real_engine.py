"""Plain `pulumi` on scripted machines: what it shows, what it keeps, and what a killed one leaves."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from .conftest import copy_of
from .engines import FLEET, Engine

pytestmark = pytest.mark.engine

DRIFT = {"p-2": {"driver@running": "580.126.20"}}
SHOWN = 'driver@running: "580.126.20 (pinned 1.0)"'


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Engine:
    """A stack whose pools were brought up and are in step; nobody works on it."""
    folder = tmp_path_factory.mktemp("settled")
    found = Engine.scripted(copy_of(checkout, folder / "check out"), folder / "engine")
    found.up()
    assert sorted(found.acts) == ["p", "q"]
    return found


@pytest.fixture
def engine(settled: Engine, tmp_path: Path) -> Engine:
    """A copy of the settled one for each test."""
    return settled.copy(tmp_path)


def wait_for_act(engine: Engine, count: int) -> None:
    """Until so many acts have begun."""
    limit = time.monotonic() + 120
    while len(engine.acts) < count:
        assert time.monotonic() < limit, "no act began"
        time.sleep(0.1)


def test_a_second_up_changes_nothing_and_a_preview_names_only_the_odd_node(engine: Engine) -> None:
    engine.up("--expect-no-changes")
    assert sorted(engine.acts) == ["p", "q"]
    engine.deviate(DRIFT)
    shown = engine.preview()
    assert SHOWN in shown
    assert not [line for line in shown.splitlines() if "p-1" in line or "p-3" in line or "q-" in line]
    assert engine.pools()["p"]["outputs"]["skew"] == {}
    engine.up()
    assert engine.acts[2:] == ["p"]
    engine.preview("--expect-no-changes")


def test_a_pool_half_finished_keeps_what_is_known_and_goes_on_next_time(engine: Engine) -> None:
    engine.deviate(DRIFT)
    engine.end_with({"p-2": {"admission": "failed: join"}}, ["p-2: failed: no kubelet"], ["p-3: busy: pod x"])
    said = engine.up(fails=True)
    assert "p-2: failed: no kubelet" in said
    assert "warning: p-3: busy: pod x" in said
    kept = engine.pools()["p"]
    assert kept["outputs"]["skew"] == {"p-2": {"admission": "failed: join"}}
    assert (kept["id"], kept["refreshBeforeUpdate"]) == ("toy/p", True)
    (engine.folder / "outcome.json").unlink()
    engine.up()
    assert engine.acts[2:] == ["p", "p"]
    engine.preview("--expect-no-changes")


def test_after_a_kill_in_the_middle_of_an_update_cancel_and_up_end_in_step(engine: Engine) -> None:
    engine.deviate(DRIFT)
    (engine.folder / "hold").touch()
    running = engine.start("up", "--yes", "--skip-preview")
    wait_for_act(engine, 3)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    (engine.folder / "hold").unlink()
    locked = engine.up(fails=True)
    assert "pulumi cancel" in locked
    engine.run("cancel", "--yes")
    engine.up()
    assert engine.acts[2:] == ["p", "p"]
    engine.preview("--expect-no-changes")


def test_a_removed_pool_and_destroy_act_on_no_machine(engine: Engine) -> None:
    path = engine.checkout / "inventory" / "fleets" / "toy.yaml"
    path.write_text(FLEET[: FLEET.index("  - name: q")])
    engine.up()
    assert list(engine.pools()) == ["p"]
    engine.run("destroy", "--yes", "--skip-preview")
    assert engine.resources() == []
    assert sorted(engine.acts) == ["p", "q"]


def test_a_renamed_pool_is_a_new_one_with_the_old_machines_and_the_old_one_is_forgotten(engine: Engine) -> None:
    old = engine.pools()["q"]
    path = engine.checkout / "inventory" / "fleets" / "toy.yaml"
    path.write_text(FLEET.replace("  - name: q\n", "  - name: renamed\n"))
    shown = engine.preview()
    assert "replace" not in shown
    engine.up()
    new = engine.pools()["renamed"]
    assert sorted(engine.pools()) == ["p", "renamed"]
    assert new["id"] == "toy/renamed"
    assert new["inputs"]["nodes"] == old["inputs"]["nodes"]
    assert sorted(engine.acts) == ["p", "q", "renamed"], "the new one looks at its machines; for the old one nothing"
    engine.up("--expect-no-changes")


def test_a_fleet_file_with_errors_is_refused_with_all_of_them_before_anything_is_done(engine: Engine) -> None:
    path = engine.checkout / "inventory" / "fleets" / "toy.yaml"
    path.write_text(
        FLEET.replace("sku: lab-gb200", "skuu: lab-gb200", 1).replace("127.90.199.[11-12]", "127.90.199.[1-2]")
    )
    said = engine.up(fails=True)
    assert "unknown key `pools.0.skuu` (did you mean `sku`?)" in said
    assert "is used twice" in said
    assert "nothing was touched" in said
    assert sorted(engine.acts) == ["p", "q"]


def test_a_pool_is_imported_by_its_identity(engine: Engine) -> None:
    urn = engine.pools()["p"]["urn"]
    engine.run("state", "delete", urn, "--yes")
    assert list(engine.pools()) == ["q"]
    engine.run("import", "lockstep:fleet:NodePool", "p", "toy/p", "--yes", "--skip-preview", "--generate-code=false")
    assert engine.pools()["p"]["inputs"]["nodes"]["p-1"] == "u1 127.90.199.1"
    assert sorted(engine.acts) == ["p", "q"]


def test_a_missing_cluster_is_an_error_at_once(engine: Engine, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("clusters: [{name: c, cluster: {server: 'https://127.90.199.250:1'}}]\n")
    said = engine.up(fails=True, KUBECONFIG=str(kubeconfig))
    assert "the cluster at https://127.90.199.250:1 does not answer" in said
