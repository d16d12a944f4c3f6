"""Facts from the Kubernetes API: what kubelets and DRA drivers published about their nodes.

A ResourceSlice outlives the boot that it was made in: it counts only when the driver's pod on that node became Ready no
earlier than the Node itself did. Nothing needs SSH, so it is what a first look at somebody else's cluster can give.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from bringup.cluster import Cluster
from bringup.cluster_views import DaemonView, ImageView, NodeView, SliceView
from bringup.parsers.texts import Raw
from bringup.sources import observed
from inventory.model import Sku
from lockstep.base.names import NodeName
from pinsets.facts import ABSENT, Fact, Layer, NodeFacts, Snapshot, Unreadable

__all__ = ["PLUGIN", "deployed", "facts_of", "read"]

PLUGIN: Final = "kubelet-plugin"
"""Part of the name of a DRA driver's DaemonSet (``nvidia-dra-driver-gpu-kubelet-plugin``)."""
_DRIVERS: Final = {"gpu.nvidia.com": "driver", "gpu.amd.com": "amdgpu"}
_IMAGES: Final = {
    "gpu-operator": "gpu-operator",
    "network-operator": "network-operator",
    "k8s-dra-driver-gpu": "dra-driver",
    "k8s-dra-driver": "dra-driver",
    "dra-driver-nvidia-gpu": "dra-driver",
    "k8s-device-plugin": "device-plugin",
    "k8s-mig-manager": "mig-manager",
    "node-feature-discovery": "nfd",
    "dcgm-exporter": "dcgm-exporter",
}
"""Last part of an image's name → component. As NVIDIA's charts and NFD's name them."""
_TAG: Final = re.compile(r"v?([0-9]+(?:\.[0-9]+){1,3}(?:-[0-9]+(?:\.[0-9]+){1,3})?)(?:[-+][A-Za-z][0-9A-Za-z.+_-]*)?")
_ADDRESSES: Final = ("resource.kubernetes.io/pciBusID", "pcieBusID", "pciBusID", "pciAddr")


def read(
    cluster: Cluster,
    names: Collection[str] | None = None,
    skus: Mapping[NodeName, Sku] | None = None,
    sku: Sku | None = None,
) -> Snapshot:
    """Facts of the Nodes ``names``, None: of all that publish GPUs, or all when none does. ``sku``: of the others.

    A name that is no Node is unreachable. Raises `errors.NotMeasuredError` when the API does not answer.
    """
    views = {view.name: view for view in cluster.nodes()}
    slices, at = cluster.all_slices(), time.time()
    daemons, running = cluster.software(PLUGIN, _IMAGES)
    everywhere, by_node = deployed(running)
    if names is None:
        names = sorted(set(views) & set(slices)) or sorted(views)
    return Snapshot(
        at,
        {
            NodeName(name): facts_of(
                NodeName(name),
                views.get(name),
                slices.get(name, ()),
                daemons.get(name, ()),
                at,
                (skus or {}).get(NodeName(name), sku),
                {**everywhere, **by_node.get(name, {})},
            )
            for name in names
        },
    )


def facts_of(
    name: NodeName,
    view: NodeView | None,
    slices: Sequence[SliceView],
    daemons: Sequence[DaemonView],
    at: float,
    sku: Sku | None = None,
    software: Mapping[str, Raw] | None = None,
) -> NodeFacts:
    """One Node's view → facts. ``software``: component → what runs of it here, as `deployed` gives it. Pure."""
    if view is None:
        return NodeFacts(name, at, unreachable="cluster: there is no Node of that name")
    if view.ready is not True:
        # What it published last may be of before whatever happened to it.
        return NodeFacts(name, at, unreachable="cluster: its Node is not Ready, so what it published is old")
    found = [*_of_node(view), *_of_slices(view, slices, daemons, sku)]
    source = "kubernetes:Pod/image"
    found += [observed.fact(name, Layer.RUNNING, value, source) for name, value in (software or {}).items()]
    attributes = {"os.image": view.os_image, "machine": view.machine, "gpus": _gpus(found, slices, sku)}
    return NodeFacts(
        name,
        at,
        {fact.coordinate: fact for fact in found},
        boot_id=view.boot_id or None,
        attributes={key: value for key, value in attributes.items() if value},
    )


def _gpus(found: Sequence[Fact], slices: Sequence[SliceView], sku: Sku | None) -> str:
    """Slots of the GPUs that are published, in the SKU's order; empty where partitions stand in their place."""
    kinds = {device.attributes.get("type", "gpu") for piece in slices for device in piece.devices}
    if kinds - {"gpu"}:
        return ""
    there = [str(fact.coordinate.instance) for fact in found if fact.coordinate.component == "gpu"]
    order = {slot: index for index, slot in enumerate(sku.slots("gpu"))} if sku is not None else {}
    return ",".join(sorted(there, key=lambda slot: (order.get(slot, len(order)), slot)))


def deployed(images: Sequence[ImageView]) -> tuple[dict[str, Raw], dict[str, dict[str, Raw]]]:
    """(component → version of what the cluster as a whole runs, absent where no pod does; node → the same of daemons).

    A component whose daemons are on nodes says nothing of the other nodes. Two versions at once, as in the middle of a
    roll-out, and a tag that is no version are unreadable.
    """
    whole: dict[str, set[str]] = {}
    nodes: dict[str, dict[str, set[str]]] = {}
    for image in images:
        name, _, tag = image.name.rpartition("/")[2].partition("@")[0].partition(":")
        component = _IMAGES.get(name)
        if component is not None:
            where = nodes.setdefault(image.node, {}) if image.daemon else whole
            where.setdefault(component, set()).add(tag)
    on_nodes = {component for found in nodes.values() for component in found}
    everywhere = {
        component: _tagged(whole[component]) if component in whole else ABSENT
        for component in sorted(set(_IMAGES.values()))
        if component in whole or component not in on_nodes
    }
    by_node = {node: {name: _tagged(tags) for name, tags in found.items()} for node, found in nodes.items()}
    return everywhere, by_node


def _tagged(tags: Collection[str]) -> Raw:
    versions = {match[1] if (match := _TAG.fullmatch(tag)) else None for tag in tags}
    if len(versions) == 1 and (version := versions.pop()) is not None:
        return version
    return Unreadable(f"its pods run images {', '.join(sorted(tag or 'without a tag' for tag in tags))[:200]}")


def _of_node(view: NodeView) -> list[Fact]:
    source = "kubernetes:Node/nodeInfo"
    found = []
    if view.kernel:
        found.append(observed.fact("kernel", Layer.RUNNING, view.kernel, source))
    if view.kubelet:
        # The kubelet itself says it when it starts.
        found += [observed.fact("kubelet", layer, view.kubelet, source) for layer in (Layer.ONDISK, Layer.RUNNING)]
    runtime, _, version = view.runtime.partition("://")
    if runtime == "containerd" and version:
        found.append(observed.fact("containerd", Layer.RUNNING, version, source))
    return found


def _of_slices(
    view: NodeView, slices: Sequence[SliceView], daemons: Sequence[DaemonView], sku: Sku | None
) -> list[Fact]:
    found: list[Fact] = []
    for driver, component in _DRIVERS.items():
        devices = [device for piece in slices if piece.driver == driver for device in piece.devices]
        if not devices:
            continue
        source = f"kubernetes:ResourceSlice/{driver}"
        why = _stale(view, daemons)
        if why is not None:
            found.append(observed.fact(component, Layer.RUNNING, Unreadable(why), source))
            continue
        versions = {_driver(device.attributes.get("driverVersion", "")) for device in devices} - {""}
        if len(versions) == 1:
            found.append(observed.fact(component, Layer.RUNNING, versions.pop(), source))
        elif versions:
            text = f"its devices name {', '.join(sorted(versions))}"
            found.append(observed.fact(component, Layer.RUNNING, Unreadable(text), source))
        slots = {_address(place): slot for place, slot in sku.gpus.items()} if sku is not None else {}
        for device in devices:
            place = next((device.attributes[key] for key in _ADDRESSES if key in device.attributes), "")
            if device.attributes.get("type", "gpu") != "gpu" or not place:
                continue
            slot = slots.get(_address(place), f"pci:{_address(place)}")
            name = device.attributes.get("productName") or "gpu"
            found.append(observed.fact("gpu", Layer.RUNNING, name, source, slot))
    return found


def _stale(view: NodeView, daemons: Sequence[DaemonView]) -> str | None:
    """Why slices of this node are not of this boot; None when they are."""
    if not any(daemon.ready for daemon in daemons):
        return "no pod of the DRA driver is Ready on the node, so its ResourceSlice may be of an earlier boot"
    # RFC 3339 in UTC, as the API writes it, orders as text.
    if not any(daemon.ready and daemon.ready_since >= view.ready_since for daemon in daemons):
        return "the DRA driver's pod became Ready before the Node did: its ResourceSlice may be of an earlier boot"
    return None


def _driver(text: str) -> str:
    """``580.105.8`` → ``580.105.08``: a semantic version has no leading zeros and always three parts (inferred)."""
    match = re.fullmatch(r"([0-9]{3})\.([0-9]+)\.([0-9]+)", text)
    if match is None:
        return text
    return f"{match[1]}.{match[2]}" if match[3] == "0" else f"{match[1]}.{match[2]}.{int(match[3]):02}"


def _address(place: str) -> str:
    """``00000000:1A:00.0`` → ``0000:1a:00.0``."""
    domain, _, rest = place.lower().partition(":")
    return f"{domain[-4:]:0>4}:{rest}"
