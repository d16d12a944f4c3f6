"""Cases of tests/data/plans: a pool as a file describes it → plans, by the real comparison and journal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bringup import cluster_views, planning, situations, words
from bringup.planning import NodePlan
from inventory import load as inventory_load
from inventory.model import Disruption, Node, NodeState, Pool, Source
from lockstep.base import documents, issues, journal
from lockstep.base.names import DomainName, NodeName, PinsetName, PoolName, Slot
from pinsets import canonical, causes, components, load
from pinsets.facts import ABSENT, Coordinate, Fact, NodeFacts, Observation, Snapshot, Unreadable, Version
from pinsets.model import Lock

OLD, NEW = "2026-09-lab-gb200", "2026-10-lab-gb200"
OS = "debian-12-amd64"
DATA = Path(__file__).parents[1] / "data" / "plans"

FRESH = {
    "kernel@running": "6.1.0-40-amd64",
    "kernel@ondisk": "6.1.0-40-amd64",
    "kernel@package": "absent",
    **{f"driver@{layer}": "absent" for layer in ("running", "ondisk", "package")},
    **{f"{name}@package": "absent" for name in ("imex", "cuda", "nccl", "container-toolkit", "kubelet", "kubeadm")},
    "nccl@library": "absent",
    **{f"firmware.gpu[gpu{number}]@running": "unreadable: driver not running" for number in range(4)},
}


def read(name: str) -> Mapping[str, Any]:
    """One case file."""
    report = issues.Report()
    document = documents.load(DATA / f"{name}.yaml", report)
    report.raise_if_errors(name)
    assert document is not None
    return dict(document.data)


def names() -> list[str]:
    """Every case."""
    return sorted(path.stem for path in DATA.glob("*.yaml"))


def lock_of(name: str) -> Lock:
    """A committed lock of the lab."""
    return load.lock(PinsetName(name), OS)


def pool_of(case: Mapping[str, Any]) -> Pool:
    """The pool; nodes are written out, ranges are the inventory's business."""
    nodes = []
    for name, entry in case["nodes"].items():
        nodes.append(
            Node(
                NodeName(name),
                PoolName("blackwell"),
                Slot(entry.get("slot", f"slot-{name}")),
                "127.0.0.1",
                DomainName(entry.get("domain", "r1")),
                spare=entry.get("spare", False),
                state=NodeState(entry.get("state", "new")),
                holder=entry.get("holder"),
            )
        )
    policy = Disruption.model_validate(case.get("policy", {}))
    sku = inventory_load.sku("lab-gb200")
    return Pool(PoolName("blackwell"), sku, OS, PinsetName(_pinset(case)), (Source.SSH,), policy, tuple(nodes))


def facts_of(name: str, entry: Mapping[str, Any], pool: Pool) -> NodeFacts:
    """In step with the lock named by ``on`` (default: the old one), but for ``facts``."""
    if "unreachable" in entry:
        return NodeFacts(NodeName(name), 1.0, unreachable=entry["unreachable"])
    lock = lock_of(entry.get("on", OLD))
    expected = lock.coordinates({"gpu": pool.sku.slots("gpu"), "nic": pool.sku.slots("nic")})
    read_: dict[Coordinate, Observation] = {at: Version(pin.version, pin.version) for at, pin in expected.items()}
    changes = dict(FRESH if entry.get("facts") == "fresh" else entry.get("facts", {}))
    for text, value in changes.items():
        at = Coordinate.parse(text)
        if at in read_ or value not in ("absent",):
            read_[at] = _observation(str(value))
    attributes = {"fabric.cluster-uuid": "11111111-0000-0000-0000-000000000001", "fabric.clique": "1"}
    if str(read_.get(Coordinate.parse("driver@running"))) != "absent":
        attributes["gpus"] = ",".join(entry.get("gpus", pool.sku.slots("gpu")))
    else:
        attributes = {}
    busy = entry.get("busy", [])
    return NodeFacts(
        NodeName(name),
        1.0,
        {at: Fact(at, seen, "test") for at, seen in read_.items()},
        boot_id="boot",
        serial=entry.get("serial", f"S-{name}"),
        busy=None if busy == "unknown" else tuple(busy),
        admission=_admission(name, entry),
        attributes=attributes,
    )


def plans_of(case: Mapping[str, Any], book: journal.Journal) -> tuple[dict[NodeName, NodePlan], situations.Picture]:
    """Plans of the whole pool."""
    pool = pool_of(case)
    lock = lock_of(_pinset(case))
    snapshot = Snapshot(1.0, {node.name: facts_of(node.name, case["nodes"][node.name], pool) for node in pool.nodes})
    _fill(book, case, pool, lock, snapshot)
    views = None
    if case.get("cluster", False):
        views = {node.name: view for node in pool.nodes if (view := view_of(node.name, case["nodes"][node.name]))}
    given = words.parse(**case.get("words", {}))
    picture = situations.picture(pool, snapshot, lock, book, given, views)
    return {name: planning.plan_node(one, components.load()) for name, one in picture.situations.items()}, picture


def view_of(name: str, entry: Mapping[str, Any]) -> cluster_views.NodeView | None:
    """The Kubernetes Node: ``unverified``, ``admitted``, ``fenced``, or none."""
    kind = entry.get("node", "admitted" if entry.get("admitted", False) else None)
    if kind is None:
        return None
    taints = {"unverified": (cluster_views.UNVERIFIED,), "fenced": (cluster_views.FENCED,), "admitted": ()}[kind]
    digest = lock_of(entry.get("admitted") if isinstance(entry.get("admitted"), str) else OLD).full
    return cluster_views.NodeView(
        name=name,
        uid="u",
        ready=True,
        unschedulable=False,
        taints=tuple(cluster_views.TaintView(key, "NoSchedule") for key in taints),
        labels={},
        annotations={} if kind == "unverified" else {cluster_views.LOCK_DIGEST: digest},
        boot_id="boot",
        machine_id="m",
        system_uuid="s",
        kernel="k",
        os_image="o",
        kubelet="v1.37.0",
        address="127.0.0.1",
        in_step=True,
        cordon_is_ours=False,
    )


def _pinset(case: Mapping[str, Any]) -> str:
    return NEW if case.get("pinset") == "next" else OLD


def _observation(text: str) -> Observation:
    if text == "absent":
        return ABSENT
    if text.startswith("unreadable: "):
        return Unreadable(text.removeprefix("unreadable: "))
    return Version(text, text)


def _admission(name: str, entry: Mapping[str, Any]) -> Mapping[str, object] | None:
    admitted = entry.get("admitted", False)
    if not admitted:
        return None
    lock = lock_of(admitted if isinstance(admitted, str) else OLD)
    return {"lock": lock.full, "job": lock.job, "serial": entry.get("serial", f"S-{name}"), "generation": 1, "at": 1.0}


def _fill(book: journal.Journal, case: Mapping[str, Any], pool: Pool, lock: Lock, snapshot: Snapshot) -> None:
    """What the journal knows: admitted nodes by default, unless the case says that it is empty."""
    if case.get("journal") == "empty":
        return
    run = book.runs.begin("bringup", pool.name)
    for node in pool.nodes:
        entry = case["nodes"][node.name]
        serial = entry.get("known_serial", entry.get("serial", f"S-{node.name}"))
        if entry.get("admitted") or entry.get("assigned"):
            held_to = lock_of(entry.get("assigned") or (entry["admitted"] if entry["admitted"] is not True else OLD))
            book.keep_lock(held_to.full, held_to.job, _text(held_to))
            previous = lock_of(entry["previous"]) if "previous" in entry else None
            if previous is not None:
                book.keep_lock(previous.full, previous.job, _text(previous))
            book.assign(node.name, serial, held_to.full, held_to.job, previous.full if previous is not None else None)
        if "interrupted" in entry:
            book.runs.start_stage(run, node.name, serial, 1, entry["interrupted"], lock.full, "boot")
        if "failed" in entry:
            attempt = book.runs.start_stage(run, node.name, serial, 1, entry["failed"], lock.full, "boot")
            book.runs.end_stage(attempt, journal.AttemptOutcome.FAILED, "by a test")
        if entry.get("staged"):
            attempt = book.runs.start_stage(run, node.name, serial, 1, "verify", lock.full, "boot")
            book.runs.end_stage(attempt, journal.AttemptOutcome.DONE)
        if "fence" in entry:
            book.fence(node.name, journal.FenceKind(entry["fence"]), "set by a test")
        if entry.get("replacing"):
            book.runs.begin_replacement(node.name, node.slot, 2)
    if case.get("journal") != "nothing seen":
        # By default nothing is new: what deviates deviated at the last reading too.
        book.see_findings(pool.name, causes.seen(situations.compare_pool(pool, snapshot, lock, book)))


def _text(lock: Lock) -> str:
    return canonical.to_json(lock)
