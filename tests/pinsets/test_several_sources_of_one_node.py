"""Readings of one node from several sources: the first counts, gaps are filled, contradictions kept."""

from __future__ import annotations

from lockstep.base.names import NodeName
from pinsets import snapshots, sources
from pinsets.facts import ABSENT, Coordinate, Fact, NodeFacts, Observation, Snapshot, Unreadable, Version

DRIVER, BIOS = Coordinate.parse("driver@running"), Coordinate.parse("firmware.bios@running")


def _node(source: str, seen: dict[Coordinate, Observation], unreachable: str | None = None) -> NodeFacts:
    facts = {place: Fact(place, value, source) for place, value in seen.items()}
    return NodeFacts(NodeName("n1"), 1.0, facts, unreachable)


def _version(text: str) -> Version:
    return Version(text, text)


def test_the_first_source_counts_and_the_second_fills_what_it_cannot_read() -> None:
    ssh = _node("ssh", {DRIVER: _version("1"), BIOS: Unreadable("needs root")})
    redfish = _node("redfish", {BIOS: _version("2")})
    found = sources.joined(ssh, redfish)
    assert found.observation(DRIVER) == _version("1")
    assert found.facts[BIOS].source == "redfish"
    assert found.others == ()


def test_contradictions_are_kept_beside_the_first_source_and_survive_a_snapshot() -> None:
    found = sources.joined(_node("ssh", {BIOS: _version("1")}), _node("redfish", {BIOS: ABSENT}))
    assert found.observation(BIOS) == _version("1")
    assert [fact.source for fact in found.others] == ["redfish"]
    again = snapshots.decode(snapshots.encode(Snapshot(1.0, {found.node: found})))
    assert again.nodes[found.node].others == found.others


def test_what_a_source_cannot_read_contradicts_nobody() -> None:
    found = sources.joined(_node("ssh", {BIOS: _version("1")}), _node("redfish", {BIOS: Unreadable("not offered")}))
    assert found.others == ()


def test_a_node_that_one_source_reached_was_reached() -> None:
    silent, read = _node("ssh", {}, "refused"), _node("redfish", {BIOS: _version("1")})
    assert sources.joined(silent, read) is read
    assert sources.joined(read, silent) is read
    assert sources.joined(silent, _node("redfish", {}, "timed out")).unreachable == "refused"
