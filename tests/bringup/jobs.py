"""Jobs on a real control plane: pods with a claim of one GPU, and what the stock scheduler said of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import lightkube
from lightkube import codecs
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim

__all__ = ["bound", "create", "end", "refused", "until"]

T = TypeVar("T")

LONG = 300.0
"""Until the scheduler must have looked; only reached when something is broken."""


def until(condition: Callable[[], T], what: str) -> T:
    """The first true value; fails with ``what``."""
    limit = time.monotonic() + LONG
    while not (found := condition()):
        assert time.monotonic() < limit, what
        time.sleep(0.2)
    return found


def create(client: lightkube.Client, name: str, node: str | None = None, gpus: int = 1) -> None:
    """A pod, for one node or for any, with a claim of so many GPUs of the same name."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": gpus}}
    head = {"name": name, "namespace": "default"}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": head,
        "spec": {"devices": {"requests": [request]}},
    }
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": node} if node is not None else {},
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    client.create(codecs.from_dict(claim))
    client.create(codecs.from_dict({"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}))


def end(client: lightkube.Client, name: str) -> None:
    """The job is over."""
    client.delete(Pod, name, namespace="default", grace_period=0)
    client.delete(ResourceClaim, name, namespace="default")


def bound(client: lightkube.Client, name: str) -> str | None:
    """The node that the scheduler gave it; None while it waits."""
    found = client.get(Pod, name, namespace="default")
    return found.spec.nodeName if found.spec else None


def refused(client: lightkube.Client, name: str) -> str | None:
    """Why the scheduler found no place; None before it looked."""
    found = client.get(Pod, name, namespace="default").to_dict()
    conditions = found.get("status", {}).get("conditions", [])
    return next((one["message"] for one in conditions if one.get("reason") == "Unschedulable"), None)
