"""Reading, marking, fencing and admitting Nodes of a real API server; the stock scheduler decides what they take."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightkube
import pytest
from lightkube import codecs
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Node, Pod, ServiceAccountToken
from lightkube.resources.resource_v1 import ResourceClaim
from lightkube.types import PatchType

from bringup import cluster_views as views
from bringup.cluster import Cluster
from lab.control_plane_testing import Machine, Plane
from lockstep.base import errors

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("applied")]

LOCK, OTHER = "0123456789abcdef" * 4, "fedcba9876543210" * 4
_numbers = itertools.count(1)


@pytest.fixture
def cluster(plane: Plane) -> Iterator[Cluster]:
    with Cluster.from_kubeconfig(plane.kubeconfig) as found:
        yield found


@pytest.fixture
def client(plane: Plane) -> Iterator[lightkube.Client]:
    with plane.client() as found:
        yield found


@pytest.fixture
def machine(plane: Plane, cluster: Cluster) -> Iterator[Machine]:
    """A Ready, unverified Node with one GPU."""
    number = next(_numbers)
    with plane.machine([f"GPU-{number}"]) as found:
        found.start_kubelet()
        cluster.wait_ready(found.name)
        until(lambda: cluster.resource_slices(found.name), "no resource slice")
        yield found
    cluster.delete_node(found.name)


def until(condition: Callable[[], Any], what: str, seconds: float = 180) -> Any:
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, what
        time.sleep(0.2)
    return found


@pytest.fixture
def pod(client: lightkube.Client) -> Iterator[Callable[..., str]]:
    """Makes a pod (with a claim of one GPU unless told otherwise) for a node; all are deleted at the end."""
    made: list[str] = []

    def make(node: str, *, gpu: bool = True, phase: str | None = None, **metadata: Any) -> str:
        name = f"pod-{next(_numbers)}"
        spec: dict[str, Any] = {
            "containers": [{"name": "main", "image": "none"}],
            "nodeSelector": {"kubernetes.io/hostname": node},
        }
        if gpu:
            request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
            claim = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {"requests": [request]}},
            }
            client.create(codecs.from_dict(claim))
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
            spec["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        head = {"name": name, "namespace": "default"} | metadata
        client.create(codecs.from_dict({"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}))
        made.append(name)
        return name

    yield make
    for name in made:
        for kind in (Pod, ResourceClaim):
            with contextlib.suppress(ApiError):  # a pod without a claim, or gone with its node
                client.delete(kind, name, namespace="default")


def bound(client: lightkube.Client, name: str) -> str | None:
    found = client.get(Pod, name, namespace="default")
    return found.spec.nodeName if found.spec else None


def refused_by_the_scheduler(client: lightkube.Client, name: str) -> str | None:
    found = client.get(Pod, name, namespace="default").to_dict()
    conditions = found.get("status", {}).get("conditions", [])
    return next((one["message"] for one in conditions if one.get("reason") == "Unschedulable"), None)


def node(cluster: Cluster, name: str) -> views.NodeView:
    found = cluster.node(name)
    assert found is not None
    return found


def test_a_claim_of_one_gpu_waits_for_an_unverified_node_and_is_allocated_once_it_is_admitted(
    cluster: Cluster, client: lightkube.Client, machine: Machine, pod: Callable[..., str]
) -> None:
    name = pod(machine.name)
    reason = until(lambda: refused_by_the_scheduler(client, name), "the scheduler has not looked at the pod")
    assert "untolerated taint" in reason
    assert bound(client, name) is None
    assert cluster.claims_on(machine.name) == []

    admitted = cluster.admit(machine.name, LOCK, boot_id=node(cluster, machine.name).boot_id)
    assert admitted.admitted
    assert admitted.in_step is True
    assert admitted.lock_digest == LOCK
    assert admitted.labels[views.LOCK_LABEL] == LOCK[:16]
    assert admitted.taints == ()
    until(lambda: bound(client, name) == machine.name, "the pod stays pending on an admitted node")
    until(lambda: client.get(Pod, name, namespace="default").status.phase == "Running", "the pod does not run")

    (claim,) = cluster.claims_on(machine.name)
    assert claim.devices == (f"gpu.nvidia.com/{machine.name}/gpu-0",)
    assert claim.reserved_for == (name,)
    assert [str(found) for found in cluster.pods_on(machine.name)] == [f"default/{name}"]


def test_a_fenced_node_takes_no_new_pod_and_keeps_what_runs(
    cluster: Cluster, client: lightkube.Client, machine: Machine, pod: Callable[..., str]
) -> None:
    cluster.admit(machine.name, LOCK)
    first = pod(machine.name)
    until(lambda: bound(client, first), "the first pod is not bound")
    cluster.fence(machine.name, "driver@running 580.126.20 (pinned 580.105.08)")
    fenced = node(cluster, machine.name)
    assert fenced.fenced
    assert not fenced.admitted
    assert fenced.in_step is False
    assert fenced.annotations[views.REASON].startswith("driver@running")
    second = pod(machine.name, gpu=False)
    assert "untolerated taint" in until(lambda: refused_by_the_scheduler(client, second), "not looked at")
    assert [found.name for found in cluster.pods_on(machine.name)] == [first]
    cluster.admit(machine.name, OTHER)
    until(lambda: bound(client, second), "admitted again, the node takes no pod")
    assert views.REASON not in node(cluster, machine.name).annotations


def test_vacate_keeps_pods_away_and_release_lifts_it(
    cluster: Cluster, client: lightkube.Client, machine: Machine, pod: Callable[..., str]
) -> None:
    cluster.admit(machine.name, LOCK)
    cluster.vacate(machine.name, "kernel@running needs a reboot", "run 7")
    cluster.vacate(machine.name, "kernel@running needs a reboot", "run 7")
    held = node(cluster, machine.name)
    assert held.unschedulable
    assert held.cordon_is_ours
    assert held.annotations[views.CORDONED_BY] == "run 7"
    waiting = pod(machine.name, gpu=False)
    until(lambda: refused_by_the_scheduler(client, waiting), "not looked at")
    assert cluster.release(machine.name)
    assert not cluster.release(machine.name)
    free = node(cluster, machine.name)
    assert not free.unschedulable
    assert free.admitted
    assert not {views.CORDONED_BY, views.REASON} & set(free.annotations)
    until(lambda: bound(client, waiting), "released, the node takes no pod")


def cordon(client: lightkube.Client, name: str, value: bool | None) -> None:
    """As `kubectl cordon` and `uncordon` do."""
    patch = {"spec": {"unschedulable": value}}
    client.patch(Node, name, patch, patch_type=PatchType.STRATEGIC, field_manager="kubectl")


def test_the_cordon_of_a_person_is_never_lifted(cluster: Cluster, client: lightkube.Client, machine: Machine) -> None:
    cordon(client, machine.name, True)
    cluster.vacate(machine.name, "drifted", "run 7")
    assert not node(cluster, machine.name).cordon_is_ours
    cluster.release(machine.name)
    cluster.admit(machine.name, LOCK)
    assert node(cluster, machine.name).unschedulable

    # A person who lifts ours and sets another owns it, although our mark was there.
    cordon(client, machine.name, None)
    cluster.vacate(machine.name, "drifted", "run 8")
    assert node(cluster, machine.name).cordon_is_ours
    cordon(client, machine.name, None)
    cordon(client, machine.name, True)
    cluster.release(machine.name)
    after = node(cluster, machine.name)
    assert after.unschedulable
    assert views.CORDONED_BY not in after.annotations


def test_taints_of_others_survive_everything_that_we_do(
    cluster: Cluster, client: lightkube.Client, machine: Machine
) -> None:
    theirs = {"key": "example.com/theirs", "value": "x", "effect": "NoSchedule"}
    ours = [{"key": taint.key, "effect": taint.effect} for taint in node(cluster, machine.name).taints]
    client.patch(Node, machine.name, {"spec": {"taints": [*ours, theirs]}}, patch_type=PatchType.MERGE)
    cluster.vacate(machine.name, "drifted", "run 7")
    cluster.release(machine.name)
    cluster.fence(machine.name, "drifted")
    cluster.admit(machine.name, LOCK)
    (left,) = node(cluster, machine.name).taints
    assert (left.key, left.value) == ("example.com/theirs", "x")


def test_admission_is_refused_for_another_boot_than_the_verified_one(cluster: Cluster, machine: Machine) -> None:
    with pytest.raises(errors.RefusedError, match="verified in boot another, but its Node reports boot"):
        cluster.admit(machine.name, LOCK, boot_id="another")
    assert node(cluster, machine.name).unverified
    assert node(cluster, machine.name).in_step is None


def test_a_change_between_reading_and_writing_is_seen(
    cluster: Cluster, client: lightkube.Client, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bringup import cluster_objects as objects

    real, calls = objects.vacating, itertools.count(1)

    def meddling(found: Any, *words: str) -> Any:
        patch = real(found, *words)
        if next(calls) == 1:  # somebody is quicker, once
            theirs = {"spec": {"taints": [{"key": "example.com/quicker", "effect": "NoSchedule"}]}}
            client.patch(Node, machine.name, theirs, patch_type=PatchType.MERGE)
        return patch

    monkeypatch.setattr(objects, "vacating", meddling)
    cluster.vacate(machine.name, "drifted", "run 7")
    keys = {taint.key for taint in node(cluster, machine.name).taints}
    assert {"example.com/quicker", views.VACATING} <= keys
    assert next(calls) == 3


def test_daemon_set_and_finished_pods_are_not_counted(
    cluster: Cluster, client: lightkube.Client, machine: Machine, pod: Callable[..., str]
) -> None:
    cluster.admit(machine.name, LOCK)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "uid": "x", "controller": True}
    daemon = pod(machine.name, gpu=False, ownerReferences=[owner])
    done = pod(machine.name, gpu=False)
    busy = pod(machine.name, gpu=False)
    for name in (done, busy):
        until(lambda name=name: client.get(Pod, name, namespace="default").status.phase == "Running", name)
    client.patch(Pod.Status, done, {"status": {"phase": "Succeeded"}}, namespace="default", patch_type=PatchType.MERGE)
    assert daemon
    assert [found.name for found in cluster.pods_on(machine.name)] == [busy]


def test_nodes_are_listed_and_a_missing_one_is_none(cluster: Cluster, machine: Machine) -> None:
    assert machine.name in [found.name for found in cluster.nodes()]
    assert cluster.node("no-such-node") is None
    assert not cluster.delete_node("no-such-node")
    with pytest.raises(errors.NotMeasuredError, match="has no Node of that name"):
        cluster.fence("no-such-node", "x")
    with pytest.raises(errors.NotMeasuredError, match="it is not registered in the cluster"):
        cluster.wait_ready("no-such-node", seconds=0)
    with pytest.raises(errors.NotMeasuredError, match="not the-next-boot"):
        cluster.wait_ready(machine.name, boot_id="the-next-boot", seconds=0)


def test_the_identity_of_a_cluster_does_not_change(cluster: Cluster, plane: Plane) -> None:
    with Cluster.from_kubeconfig(plane.kubeconfig) as again:
        assert cluster.identity() == again.identity() != ""


def test_the_rights_that_we_ask_for_suffice_and_the_readers_do_not(
    plane: Plane, client: lightkube.Client, machine: Machine, tmp_path: Path
) -> None:
    def as_account(name: str) -> Cluster:
        token = client.create(
            ServiceAccountToken.from_dict({"metadata": {}, "spec": {"audiences": []}}),
            name,
            namespace="lockstep-system",
        )
        config = plane.kubeconfig.read_text()
        path = tmp_path / name
        path.write_text(config.replace(_token(config), token.status.token))
        return Cluster.from_kubeconfig(path)

    with as_account("lockstep-engine") as engine:
        engine.identity()
        engine.vacate(machine.name, "drifted", "run 7")
        engine.release(machine.name)
        engine.fence(machine.name, "drifted")
        assert engine.admit(machine.name, LOCK).admitted
        engine.pods_on(machine.name)
        engine.claims_on(machine.name)
        assert engine.resource_slices(machine.name)
        assert engine.delete_node(machine.name)
    with as_account("lockstep-reader") as reader:
        assert reader.nodes() is not None
        with pytest.raises(errors.RefusedError, match="may not list pods on"):
            reader.pods_on(machine.name)


def _token(config: str) -> str:
    import json

    return str(json.loads(config)["users"][0]["user"]["token"])
