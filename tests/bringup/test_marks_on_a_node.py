"""The patches that mark, fence and admit a Node, and whose cordon is whose; no cluster needed."""

from __future__ import annotations

import datetime
from typing import Any

from bringup import cluster_objects as objects
from bringup import cluster_views as views

LOCK = "0123456789abcdef" * 4
NOW = datetime.datetime(2026, 9, 1, 12, 0, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(hours=1)


def node(*, taints: tuple[str, ...] = (), cordoned_by: str | None = None, marked: bool = False) -> dict[str, Any]:
    """A Node; ``cordoned_by`` is the manager that set the cordon, ``marked`` that it carries our mark."""
    metadata: dict[str, Any] = {"name": "gpu-001", "uid": "u1"}
    spec: dict[str, Any] = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}
    if cordoned_by is not None:
        spec["unschedulable"] = True
        metadata["managedFields"] = [{"manager": cordoned_by, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    if marked:
        metadata["annotations"] = {views.CORDONED_BY: "run 7"}
    return {"metadata": metadata, "spec": spec}


def test_vacating_taints_and_cordons_and_says_who_did_it() -> None:
    patch = objects.vacating(node(), "driver@running drifted", "run 7")
    assert patch is not None
    assert patch["spec"]["unschedulable"] is True
    assert [taint["key"] for taint in patch["spec"]["taints"]] == [views.VACATING]
    assert patch["metadata"]["annotations"] == {views.REASON: "driver@running drifted", views.CORDONED_BY: "run 7"}


def test_vacating_a_node_that_somebody_cordoned_leaves_the_cordon_theirs() -> None:
    patch = objects.vacating(node(cordoned_by="kubectl"), "drifted", "run 7")
    assert patch is not None
    assert "unschedulable" not in patch["spec"]
    assert views.CORDONED_BY not in patch["metadata"]["annotations"]


def test_vacating_twice_changes_nothing() -> None:
    assert objects.vacating(node(taints=(views.VACATING,), cordoned_by="lockstep", marked=True), "x", "y") is None


def test_taints_of_others_stay_when_ours_are_lifted() -> None:
    patch = objects.lifting(node(taints=("example.com/theirs", views.VACATING)), {views.VACATING})
    assert patch is not None
    assert [taint["key"] for taint in patch["spec"]["taints"]] == ["example.com/theirs"]


def test_our_cordon_is_lifted() -> None:
    patch = objects.lifting(node(taints=(views.VACATING,), cordoned_by="lockstep", marked=True), {views.VACATING})
    assert patch is not None
    assert patch["spec"]["unschedulable"] is None
    assert patch["metadata"]["annotations"] == {views.CORDONED_BY: None}


def test_a_cordon_that_a_person_set_after_lifting_ours_stays_although_our_mark_is_there() -> None:
    patch = objects.lifting(node(taints=(views.VACATING,), cordoned_by="kubectl", marked=True), {views.VACATING})
    assert patch is not None
    assert "unschedulable" not in patch["spec"]
    assert patch["metadata"]["annotations"] == {views.CORDONED_BY: None}


def test_nothing_of_ours_means_nothing_to_lift() -> None:
    assert objects.lifting(node(taints=("example.com/theirs",), cordoned_by="kubectl"), views.OUR_TAINTS) is None


def test_releasing_a_fenced_node_keeps_the_fence_and_its_reason() -> None:
    fenced = node(taints=(views.FENCED, views.VACATING))
    fenced["metadata"]["annotations"] = {views.REASON: "drifted"}
    patch = objects.lifting(fenced, {views.VACATING})
    assert patch is not None
    assert [taint["key"] for taint in patch["spec"]["taints"]] == [views.FENCED]
    assert views.REASON not in patch["metadata"]["annotations"]


def test_admitting_lifts_all_of_ours_and_names_the_lock_in_one_patch() -> None:
    patch = objects.admitting(node(taints=(views.UNVERIFIED, "example.com/theirs", views.FENCED)), LOCK)
    assert [taint["key"] for taint in patch["spec"]["taints"]] == ["example.com/theirs"]
    assert patch["metadata"]["labels"] == {views.LOCK_LABEL: LOCK[:16]}
    assert patch["metadata"]["annotations"][views.LOCK_DIGEST] == LOCK


def test_the_condition_keeps_the_time_of_its_last_change_while_its_status_stays() -> None:
    first = objects.with_condition(node(), True, "LockMatches", "a", NOW)
    assert first is not None
    (condition,) = first["status"]["conditions"]
    assert condition["lastTransitionTime"] == "2026-09-01T12:00:00Z"
    marked = node() | {"status": {"conditions": [condition]}}
    assert objects.with_condition(marked, True, "LockMatches", "a", LATER) is None
    again = objects.with_condition(marked, True, "LockMatches", "b", LATER)
    assert again is not None
    assert "lastTransitionTime" not in again["status"]["conditions"][0]
    turned = objects.with_condition(marked, False, "Fenced", "b", LATER)
    assert turned is not None
    assert turned["status"]["conditions"][0]["lastTransitionTime"] == "2026-09-01T13:00:00Z"


def test_a_condition_that_is_unknown_is_neither_true_nor_false() -> None:
    unknown = node() | {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    assert objects.node_view(unknown).ready is None
    assert objects.node_view(node()).in_step is None


def pod(**changes: Any) -> dict[str, Any]:
    metadata = {"namespace": "n", "name": "p", "uid": "u"} | changes.pop("metadata", {})
    return {"metadata": metadata, "status": {"phase": "Running"}} | changes


def test_finished_daemon_set_and_mirror_pods_do_not_occupy_a_node() -> None:
    assert objects.occupies(pod())
    assert objects.occupies(pod(status={"phase": "Pending"}))
    assert not objects.occupies(pod(status={"phase": "Succeeded"}))
    assert not objects.occupies(pod(status={"phase": "Failed"}))
    assert not objects.occupies(pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}))
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    assert not objects.occupies(pod(metadata={"ownerReferences": [owner]}))
    assert objects.occupies(pod(metadata={"ownerReferences": [owner | {"kind": "ReplicaSet"}]}))


def claim(allocation: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "n", "name": "c", "uid": "u"},
        "status": {"allocation": allocation} if allocation else {},
    }


RESULT = {"driver": "gpu.nvidia.com", "pool": "gpu-001", "device": "gpu-0", "request": "gpu"}


def test_a_claim_holds_devices_of_the_node_whose_pool_it_names() -> None:
    held = claim({"devices": {"results": [RESULT]}})
    assert objects.holds_devices_of(held, "gpu-001", {("gpu.nvidia.com", "gpu-001")})
    assert not objects.holds_devices_of(held, "gpu-002", {("gpu.nvidia.com", "gpu-002")})
    assert not objects.holds_devices_of(claim(None), "gpu-001", {("gpu.nvidia.com", "gpu-001")})


def test_a_claim_on_a_dead_node_without_slices_is_still_found() -> None:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-001"]}]}]
    held = claim({"devices": {"results": [RESULT]}, "nodeSelector": {"nodeSelectorTerms": terms}})
    assert objects.holds_devices_of(held, "gpu-001", set())
    assert not objects.holds_devices_of(held, "gpu-002", set())
