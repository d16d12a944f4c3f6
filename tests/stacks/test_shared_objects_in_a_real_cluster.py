"""The cluster's shared objects by the real engine: made once, never replaced, and kept when the stack lets go."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import manifests
from lockstep.base import programs

from .conftest import copy_of
from .engines import FLEET, Engine

pytestmark = [pytest.mark.engine, pytest.mark.cluster]

KINDS = "namespaces,deviceclasses,customresourcedefinitions,clusterroles,clusterrolebindings"


class Cluster:
    """A control plane of this module's own: destroying the stack removes objects that other tests would miss."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def ours(self) -> dict[str, dict[str, Any]]:
        """``Kind/name`` → object, of everything that is part of us."""
        command = [programs.find("kubectl"), f"--kubeconfig={self.kubeconfig}", "get", KINDS, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {
            f"{item['kind']}/{item['metadata']['name']}": item
            for item in json.loads(done.stdout)["items"]
            if item["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "lockstep"
        }

    def uids(self, retained: bool | None = None) -> dict[str, str]:
        """``Kind/name`` → uid, of all or of those that are to be retained (or not)."""
        return {
            name: item["metadata"]["uid"]
            for name, item in self.ours().items()
            if retained is None or manifests.retained(item) is retained
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane."""
    from lab import control_plane_testing

    with control_plane_testing.running(tmp_path_factory.mktemp("stacks-control-plane") / "lab") as plane:
        yield Cluster(plane.kubeconfig)


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory, checkout: Path, cluster: Cluster) -> Engine:
    """A stack with two scripted pools and the cluster, brought up; nobody works on it."""
    folder = tmp_path_factory.mktemp("settled")
    found = Engine.scripted(copy_of(checkout, folder / "check out"), folder / "engine", cluster.kubeconfig)
    found.up()
    return found


@pytest.fixture
def engine(settled: Engine, tmp_path: Path) -> Engine:
    """A copy of the settled one for each test; the cluster is one for all."""
    return settled.copy(tmp_path)


def tokens(cluster: Cluster) -> set[str]:
    """Every credential of the control plane."""
    lines = (cluster.kubeconfig.parent / "control-plane" / "tokens.csv").read_text().splitlines()
    return {line.split(",")[0].strip('"') for line in lines if line}


def test_objects_are_made_before_pools_and_a_second_up_changes_nothing(engine: Engine, cluster: Cluster) -> None:
    assert {name.partition("/")[0] for name in cluster.uids(retained=True)} >= {"Namespace", "DeviceClass"}
    assert sorted(engine.acts) == ["p", "q"]
    kinds = [one["type"] for one in engine.resources()]
    assert kinds.index("kubernetes:core/v1:Namespace") < kinds.index("lockstep:fleet:NodePool")
    assert not [
        one for one in engine.resources() if one["type"] == "pulumi:providers:kubernetes" and "default" in one["urn"]
    ]
    engine.up("--expect-no-changes")


def test_neither_a_moved_kubeconfig_nor_a_changed_identifier_replaces_anything(
    engine: Engine, cluster: Cluster, tmp_path: Path
) -> None:
    before = cluster.uids()
    engine.kubeconfig = Path(shutil.copy(cluster.kubeconfig, tmp_path / "moved"))
    engine.run("config", "set", "cluster", "another")
    assert "replace" not in engine.preview()
    engine.up()
    assert cluster.uids() == before


def test_a_dropped_component_and_destroy_keep_what_others_would_lose(engine: Engine, cluster: Cluster) -> None:
    kept = cluster.uids(retained=True)
    path = engine.checkout / "inventory" / "fleets" / "toy.yaml"
    path.write_text(FLEET.replace("lab-gb200", "lab-b300").replace("2026-09-lab-gb200", "2026-09-lab-b300"))
    engine.up()
    assert cluster.uids(retained=True) == kept
    engine.run("destroy", "--yes", "--skip-preview")
    assert cluster.uids(retained=True) == kept
    assert cluster.uids(retained=False) == {}
    assert engine.resources() == []
    engine.up()
    assert cluster.uids(retained=True) == kept


def test_a_fresh_clone_without_a_state_takes_the_objects_over(
    engine: Engine, cluster: Cluster, checkout: Path, tmp_path: Path
) -> None:
    before = cluster.uids(retained=True)
    fresh = Engine.scripted(copy_of(checkout, tmp_path / "fresh" / "check out"), tmp_path / "other", cluster.kubeconfig)
    fresh.up()
    fresh.up("--expect-no-changes")
    assert cluster.uids(retained=True) == before


def test_no_credential_of_the_cluster_is_in_state_or_output(engine: Engine, cluster: Cluster) -> None:
    output = engine.preview()
    state = "".join(path.read_text(errors="replace") for path in (engine.folder / "state").rglob("*") if path.is_file())
    assert str(cluster.kubeconfig) in state
    for token in tokens(cluster):
        assert token not in state
        assert token not in output
