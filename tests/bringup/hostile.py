"""An audit of a fleet whose machines say whatever they like: escape sequences, markup, directions, forbidden bytes."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping

from bringup import audit
from bringup.reading import Reading
from inventory import model
from lockstep.base.names import DomainName, FleetName, NodeName, PinsetName, PoolName, Slot
from pinsets.facts import Coordinate, NodeFacts, Snapshot
from pinsets.findings import Comparison, Finding, NodeVerdict, Severity, Verdict

ESCAPE = "\x1b[2J\x1b]0;owned\x07"
C1 = "\x9b31m"
DIRECTION = "\u202e580.1"
MARKUP = "</script><img src=x onerror=\"document.title='owned'\"><!--"
FORBIDDEN = "\x00\ufffe\ud800"
NAMES = ("gpu-1", f"gpu-{ESCAPE}", MARKUP, "a b;$(touch owned)`touch owned`", f"{DIRECTION}{C1}")


def finding(text: str, nodes: tuple[str, ...], severity: Severity = Severity.BLOCK) -> Finding:
    """One that says ``text`` in every field that a machine fills."""
    place = Coordinate.parse("driver@running")
    names = tuple(NodeName(name) for name in nodes)
    return Finding(f"pin.driver{text}", severity, place, names, text, text, text, text)


def found(texts: Mapping[str, str] | None = None) -> audit.Audit:
    """One pool, one node per name; each is drifted by what it says."""
    said = texts or dict(zip(NAMES, (ESCAPE, C1, MARKUP, DIRECTION, FORBIDDEN), strict=True))
    findings = {name: finding(text, (name,)) for name, text in said.items()}
    nodes = {
        NodeName(name): NodeVerdict(NodeName(name), Verdict.DRIFTED, (one,), "f" * 64) for name, one in findings.items()
    }
    nodes[NodeName("fine-1")] = NodeVerdict(NodeName("fine-1"), Verdict.ADMIT, (), "f" * 64)
    sku = model.SkuFile(sku="s", accelerator="A", gpus={}, nvlink="none")
    pool = model.Pool(
        PoolName("p"),
        sku,
        "debian-12-amd64",
        PinsetName("x"),
        (),
        model.Disruption(),
        tuple(
            model.Node(name, PoolName("p"), Slot(f"r{index // 3}-u{index:02d}"), str(name), DomainName("r1"), line=9)
            for index, name in enumerate(nodes)
        ),
    )
    comparison = Comparison(
        nodes, {DomainName(f"r1{MARKUP}"): Verdict.DRIFTED}, tuple(findings.values()), baseline=f"lock {MARKUP}{ESCAPE}"
    )
    facts = {name: NodeFacts(name, 1_796_000_000.0, serial=MARKUP) for name in nodes}
    snapshot = Snapshot(1_796_000_000.0, facts)
    reading = Reading(snapshot, {PoolName("p"): comparison}, {}, True, f"read now {ESCAPE}")
    return audit.Audit(FleetName("fleet"), (audit.PoolAudit("p", pool, "f" * 64, comparison, facts),), reading, None)


def waived() -> audit.Audit:
    """One node in step but for a deviation that its fleet file puts up with."""
    given = found({"gpu-1": "580.95.05"})
    pool = given.pools[0]
    assert pool.pool is not None
    place = Coordinate.parse("driver@running")
    one = Finding(
        "waived.pin.driver",
        Severity.INFO,
        place,
        (NodeName("gpu-1"),),
        "580.105.08",
        "580.95.05",
        "waived until 2026-12-31: OPS-77",
        "before then: install",
    )
    waiver = model.Waiver(
        coordinate=str(place), value="580.95.05", reason="OPS-77", expires=datetime.date(2026, 12, 31)
    )
    nodes = tuple(
        dataclasses.replace(node, waivers=(waiver,)) if node.name == "gpu-1" else node for node in pool.pool.nodes
    )
    verdicts = {**pool.comparison.nodes, NodeName("gpu-1"): NodeVerdict(NodeName("gpu-1"), Verdict.ADMIT, (one,))}
    comparison = dataclasses.replace(pool.comparison, nodes=verdicts, findings=(one,), domains={}, baseline="lock x")
    kept = dataclasses.replace(pool, pool=dataclasses.replace(pool.pool, nodes=nodes), comparison=comparison)
    return dataclasses.replace(given, pools=(kept,))
