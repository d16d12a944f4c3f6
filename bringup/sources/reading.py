"""The sources by the words of the command line: `--facts redfish|kubernetes` for a fleet, and clusters without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from bringup.sources import observed
from inventory.model import Fleet, Node, Sku
from lockstep.base import errors
from lockstep.base.names import NodeName
from lockstep.base.settings import Settings
from pinsets.facts import Snapshot
from pinsets.model import Lock

__all__ = ["WORDS", "of_context", "of_fleet", "of_prometheus"]

WORDS: Final = ("redfish", "kubernetes")
Progress = Callable[[int, int, NodeName], None]


def of_fleet(
    word: str,
    fleet: Fleet,
    names: Collection[NodeName],
    locks: Mapping[str, Lock],
    settings: Settings,
    progress: Progress | None = None,
) -> Snapshot:
    """Facts of nodes of ``fleet`` from one source; what their pool's lock pins beyond it is `not offered`.

    Raises `errors.InputError` without credentials or a kubeconfig, `errors.NotMeasuredError` when a cluster is silent.
    """
    wanted = set(names)
    members = {node.name: (node, pool) for pool in fleet.pools for node in pool.nodes if node.name in wanted}
    if word == "redfish":
        from bringup.redfish import source

        asked = [source.Asked(node, pool.sku) for node, pool in members.values()]
        found = source.read(asked, progress=progress)
    else:
        found = _cluster(settings, {name: node for name, (node, _) in members.items()}, fleet)
    coordinates = {
        name: locks[pool.name].coordinates(pool.sku.all_slots())
        for name, (_, pool) in members.items()
        if pool.name in locks
    }
    return observed.with_gaps(found, coordinates, word)


def _cluster(settings: Settings, members: Mapping[NodeName, Node], fleet: Fleet) -> Snapshot:
    from bringup import joining

    way = joining.from_environment(settings, os.environ)
    if way is None:
        raise errors.InputError("there is no cluster to ask", place="--facts kubernetes", hint="set KUBECONFIG")
    skus = {node.name: pool.sku for pool in fleet.pools for node in pool.nodes}
    return _of_kubeconfig(way.kubeconfig, None, members, skus)


def of_context(context: str, sku: Sku | None = None, lock: Lock | None = None) -> Snapshot:
    """Every GPU node of the cluster of a kubeconfig's context; the file is KUBECONFIG's first, else ~/.kube/config.

    With a lock and the machine type of all of them, what it pins beyond is `not offered`.
    """
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = Path(named) if named else Path.home() / ".kube" / "config"
    return _gaps(_of_kubeconfig(path, context, sku=sku), sku, lock, "kubernetes")


def _of_kubeconfig(
    path: Path,
    context: str | None,
    names: Collection[str] | None = None,
    skus: Mapping[NodeName, Sku] | None = None,
    sku: Sku | None = None,
) -> Snapshot:
    try:
        from bringup.cluster import Cluster
        from bringup.sources import kubernetes
    except ImportError as error:
        hint = "install it with its extra, 'lockstep-fleet[bringup] @ git+URL', or use a checkout (`make`)"
        raise errors.EngineError("asking a cluster needs lightkube", hint=hint) from error
    with Cluster.from_kubeconfig(path, context) as cluster:
        return kubernetes.read(cluster, names, skus, sku)


def of_prometheus(url: str, sku: Sku | None = None, lock: Lock | None = None) -> Snapshot:
    """Every node that the exporters of a Prometheus name; ``sku`` and ``lock`` as in `of_context`."""
    from bringup.sources import prometheus

    return _gaps(prometheus.read(url), sku, lock, "prometheus")


def _gaps(snapshot: Snapshot, sku: Sku | None, lock: Lock | None, word: str) -> Snapshot:
    if sku is None or lock is None:
        return snapshot
    return observed.with_gaps(snapshot, dict.fromkeys(snapshot.nodes, lock.coordinates(sku.all_slots())), word)
