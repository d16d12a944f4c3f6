"""Kubernetes objects, as the API's plain dicts, into views and into the patches that we write. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from bringup import cluster_views as views

__all__ = [
    "MANAGER",
    "admitting",
    "claim_ref",
    "daemon_view",
    "fencing",
    "holds_devices_of",
    "image_views",
    "lifting",
    "node_view",
    "occupies",
    "pod_ref",
    "slice_view",
    "vacating",
    "with_condition",
]

Obj = Mapping[str, Any]
Patch = dict[str, Any]
"""A JSON merge patch (None takes a field away), with a `metadata` for the caller's preconditions."""

MANAGER: Final = "lockstep"
"""Our name in managedFields: it tells our cordon from one that somebody else set since."""


# ---- views


def node_view(node: Obj) -> views.NodeView:
    """A Node."""
    metadata, status = node.get("metadata", {}), node.get("status", {})
    info = status.get("nodeInfo", {})
    return views.NodeView(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        ready=_truth(node, "Ready"),
        unschedulable=_cordoned(node),
        taints=tuple(views.TaintView(one["key"], one["effect"], one.get("value") or "") for one in _taints(node)),
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(_annotations(node)),
        boot_id=info.get("bootID", ""),
        machine_id=info.get("machineID", ""),
        system_uuid=info.get("systemUUID", ""),
        kernel=info.get("kernelVersion", ""),
        os_image=info.get("osImage", ""),
        kubelet=info.get("kubeletVersion", ""),
        address=next((one["address"] for one in status.get("addresses") or () if one["type"] == "InternalIP"), None),
        in_step=_truth(node, views.IN_STEP),
        cordon_is_ours=_cordon_is_ours(node),
        runtime=info.get("containerRuntimeVersion", ""),
        machine=info.get("architecture", ""),
        ready_since=_since(node, "Ready"),
    )


def daemon_view(pod: Obj) -> tuple[str, views.DaemonView] | None:
    """(node, pod of a DaemonSet); None for other pods and for one that is nowhere yet."""
    owners = pod.get("metadata", {}).get("ownerReferences") or ()
    owner = next((one["name"] for one in owners if one.get("controller") and one["kind"] == "DaemonSet"), None)
    node = pod.get("spec", {}).get("nodeName")
    if owner is None or not node:
        return None
    return node, views.DaemonView(owner, _truth(pod, "Ready") is True, _since(pod, "Ready"))


def image_views(pod: Obj) -> list[views.ImageView]:
    """The images of a pod that runs somewhere, those of its init containers left out."""
    node = pod.get("spec", {}).get("nodeName")
    if not node or pod.get("status", {}).get("phase") != "Running":
        return []
    owners = pod.get("metadata", {}).get("ownerReferences") or ()
    daemon = any(one.get("controller") and one["kind"] == "DaemonSet" for one in owners)
    names = [str(one.get("image") or "") for one in pod["spec"].get("containers") or ()]
    return [views.ImageView(node, name, daemon) for name in names if name]


def _since(obj: Obj, kind: str) -> str:
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((str(one.get("lastTransitionTime") or "") for one in conditions if one.get("type") == kind), "")


def occupies(pod: Obj) -> bool:
    """Whether a pod keeps its node from being vacant: not finished, not a DaemonSet's, not static (mirror)."""
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return False
    metadata = pod.get("metadata", {})
    if "kubernetes.io/config.mirror" in (metadata.get("annotations") or {}):
        return False
    owners = metadata.get("ownerReferences") or ()
    return not any(owner.get("controller") and owner["kind"] == "DaemonSet" for owner in owners)


def pod_ref(pod: Obj) -> views.PodRef:
    """A pod's names."""
    metadata = pod["metadata"]
    return views.PodRef(metadata["namespace"], metadata["name"], metadata["uid"])


def holds_devices_of(claim: Obj, name: str, pools: Collection[tuple[str, str]]) -> bool:
    """Whether devices of the node ``name`` are allocated to the claim; ``pools`` are its (driver, pool)."""
    allocation = claim.get("status", {}).get("allocation")
    if not allocation:
        return False
    if any((one["driver"], one["pool"]) in pools for one in _results(allocation)):
        return True
    # The slices of a dead node may be gone; the allocation still names the node.
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    fields = [field for term in terms for field in term.get("matchFields") or ()]
    return any(field["key"] == "metadata.name" and name in (field.get("values") or ()) for field in fields)


def claim_ref(claim: Obj) -> views.ClaimRef:
    """A claim with its devices and users."""
    metadata, status = claim["metadata"], claim.get("status", {})
    results = _results(status.get("allocation") or {})
    return views.ClaimRef(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        tuple(f"{one['driver']}/{one['pool']}/{one['device']}" for one in results),
        tuple(user["name"] for user in status.get("reservedFor") or ()),
    )


def slice_view(piece: Obj) -> views.SliceView:
    """A ResourceSlice."""
    spec = piece["spec"]
    devices = tuple(
        views.DeviceView(
            device["name"],
            {key: str(next(iter(one.values()), "")) for key, one in (device.get("attributes") or {}).items()},
        )
        for device in spec.get("devices") or ()
    )
    pool = spec["pool"]
    return views.SliceView(piece["metadata"]["name"], spec["driver"], pool["name"], pool["generation"], devices)


# ---- patches; None when there is nothing to change


def vacating(node: Obj, reason: str, holder: str) -> Patch | None:
    """Our taint, and a cordon marked as ours unless somebody else's is there already."""
    taints = _with_taint(node, views.VACATING)
    marks = {views.REASON: reason}
    spec: dict[str, Any] = {"taints": taints}
    if not _cordoned(node):
        spec["unschedulable"] = True
        marks[views.CORDONED_BY] = holder
    elif taints == _taints(node):
        return None
    return {"metadata": {"annotations": marks}, "spec": spec}


def fencing(node: Obj, reason: str) -> Patch | None:
    """The taint of a fenced node, with the reason."""
    taints = _with_taint(node, views.FENCED)
    if taints == _taints(node) and _annotations(node).get(views.REASON) == reason:
        return None
    return {"metadata": {"annotations": {views.REASON: reason}}, "spec": {"taints": taints}}


def admitting(node: Obj, lock: str) -> Patch:
    """Everything of ours that kept jobs away is lifted, and the lock's digest put on the Node, in one patch."""
    patch = lifting(node, views.OUR_TAINTS) or {"metadata": {}}
    metadata = patch["metadata"]
    metadata["labels"] = {views.LOCK_LABEL: lock[:16]}
    metadata["annotations"] = metadata.get("annotations", {}) | {views.LOCK_DIGEST: lock}
    return patch


def lifting(node: Obj, keys: Collection[str]) -> Patch | None:
    """These taints of ours and our cordon away; a cordon that somebody else set stays, only our mark on it goes."""
    taints = _taints(node)
    kept = [one for one in taints if one["key"] not in keys]
    marks = [mark for mark in (views.CORDONED_BY, views.REASON) if mark in _annotations(node)]
    if any(one["key"] == views.FENCED for one in kept):
        marks = [mark for mark in marks if mark != views.REASON]
    if kept == taints and not marks:
        return None
    spec: dict[str, Any] = {"taints": kept or None}
    if _cordon_is_ours(node):
        spec["unschedulable"] = None
    return {"metadata": {"annotations": dict.fromkeys(marks)}, "spec": spec}


def with_condition(node: Obj, value: bool, reason: str, message: str, now: datetime.datetime) -> Patch | None:
    """The condition InStep; the time of its last change moves only when its status does."""
    old = _condition(node, views.IN_STEP)
    status = "True" if value else "False"
    if old is not None and (old["status"], old.get("reason"), old.get("message")) == (status, reason, message):
        return None
    moment = now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": views.IN_STEP, "status": status, "reason": reason, "message": message}
    condition |= {"lastHeartbeatTime": moment}
    if old is None or old["status"] != status:
        condition |= {"lastTransitionTime": moment}
    return {"metadata": {}, "status": {"conditions": [condition]}}


# ---- parts


def _results(allocation: Obj) -> Iterable[Obj]:
    found: Iterable[Obj] = (allocation.get("devices") or {}).get("results") or ()
    return found


def _condition(node: Obj, kind: str) -> Obj | None:
    conditions = node.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), None)


def _truth(node: Obj, kind: str) -> bool | None:
    found = _condition(node, kind)
    return {"True": True, "False": False}.get(found["status"]) if found is not None else None


def _annotations(node: Obj) -> Mapping[str, str]:
    return node.get("metadata", {}).get("annotations") or {}


def _taints(node: Obj) -> list[dict[str, Any]]:
    return list(node.get("spec", {}).get("taints") or ())


def _with_taint(node: Obj, key: str) -> list[dict[str, Any]]:
    found = _taints(node)
    return found if any(one["key"] == key for one in found) else [*found, {"key": key, "effect": "NoSchedule"}]


def _cordoned(node: Obj) -> bool:
    return bool(node.get("spec", {}).get("unschedulable"))


def _cordon_is_ours(node: Obj) -> bool:
    """Marked as ours, and the field was last set by us: a person may have lifted our cordon and set another."""
    if not _cordoned(node) or views.CORDONED_BY not in _annotations(node):
        return False
    entries = node.get("metadata", {}).get("managedFields") or ()
    owners = {one["manager"] for one in entries if "f:unschedulable" in (one.get("fieldsV1") or {}).get("f:spec", {})}
    return owners == {MANAGER}
