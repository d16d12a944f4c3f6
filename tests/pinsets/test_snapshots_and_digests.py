"""What is written down reads back the same: coordinates, snapshots, digests."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from lockstep.base import errors
from lockstep.base.names import ComponentName, NodeName
from pinsets import canonical, load, snapshots
from pinsets.facts import ABSENT, Coordinate, Fact, Layer, NodeFacts, Snapshot, Unreadable, Version
from pinsets.model import Scope

WORDS = strategies.from_regex(r"\A[a-z][a-z0-9.-]{0,12}\Z")
COORDINATES = strategies.builds(
    Coordinate,
    WORDS.map(ComponentName),
    strategies.sampled_from(Layer),
    strategies.none() | strategies.from_regex(r"\A[a-z0-9:.]{1,12}\Z"),
)
TEXTS = strategies.text(min_size=1, max_size=20)
OBSERVATIONS = strategies.one_of(
    strategies.builds(Version, TEXTS, TEXTS), strategies.just(ABSENT), strategies.builds(Unreadable, TEXTS)
)
FACTS = strategies.lists(strategies.builds(Fact, COORDINATES, OBSERVATIONS, TEXTS), max_size=6).map(
    lambda facts: {fact.coordinate: fact for fact in facts}
)
NODES = strategies.lists(
    strategies.builds(
        NodeFacts,
        WORDS.map(NodeName),
        strategies.floats(0, 2e9),
        FACTS,
        strategies.none() | TEXTS,
        strategies.none() | TEXTS,
        strategies.none() | TEXTS,
        strategies.none() | strategies.lists(TEXTS, max_size=2).map(tuple),
        strategies.none() | strategies.just({"lock": "f" * 64, "time": 1.5}),
        strategies.dictionaries(WORDS, TEXTS, max_size=4),
    ),
    max_size=5,
)


@hypothesis.given(COORDINATES)
@hypothesis.settings(deadline=None, max_examples=80)
def test_a_coordinate_reads_back_from_its_text(coordinate: Coordinate) -> None:
    assert Coordinate.parse(str(coordinate)) == coordinate
    assert hash(Coordinate.parse(str(coordinate))) == hash(coordinate)


@pytest.mark.parametrize("text", ["driver", "driver@", "@running", "driver@somewhere", "gpu[@running", "gpu[]@running"])
def test_what_is_no_coordinate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Coordinate.parse(text)


@hypothesis.given(NODES)
@hypothesis.settings(deadline=None, max_examples=80)
def test_a_snapshot_reads_back_from_its_lines(nodes: list[NodeFacts]) -> None:
    snapshot = Snapshot(12.5, {node.node: node for node in nodes})
    lines = list(snapshots.encode(snapshot))
    assert snapshots.decode(lines) == snapshot
    assert all("\n" not in line for line in lines)


def test_equal_fact_sets_are_written_once_and_shared_when_read(tmp_path: Path) -> None:
    at = Coordinate(ComponentName("driver"), Layer.RUNNING)

    def node(name: str, version: str) -> NodeFacts:
        return NodeFacts(
            NodeName(name), 1.0, {at: Fact(at, Version(version, version), "ssh:x")}, attributes={"k": name}
        )

    nodes = [node(f"n{number}", "1" if number else "2") for number in range(50)]
    path = tmp_path / "snapshots" / "one.jsonl.gz"
    snapshots.write(path, Snapshot(1.0, {one.node: one for one in nodes}))
    assert path.stat().st_mode & 0o777 == 0o600
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert len([line for line in lines if json.loads(line).get("facts")]) == 2
    found = snapshots.read(path)
    assert len({id(one.facts) for one in found.nodes.values()}) == 2
    assert found.nodes == {one.node: one for one in nodes}
    first = path.read_bytes()
    snapshots.write(path, found)
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["not json"],
        ['{"snapshot": 2, "taken_at": 1}'],
        ['{"snapshot": 1, "taken_at": 1}', '{"node": "n1", "at": 1, "set": 7}'],
        ['{"snapshot": 1, "taken_at": 1}', '{"surprise": 1}'],
    ],
)
def test_half_a_snapshot_is_none(lines: list[str]) -> None:
    with pytest.raises(errors.InputError, match="no stored snapshot"):
        snapshots.decode(lines)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.gz"
    snapshots.write(path, Snapshot(1.0, {}))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(errors.InputError):
        snapshots.read(path)
    with pytest.raises(errors.InputError, match="no such snapshot"):
        snapshots.read(tmp_path / "none")


@pytest.mark.parametrize("damage", ["bytes inside", "brackets without end", "too long"])
def test_a_damaged_file_is_bad_input_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    path = tmp_path / "s.jsonl.gz"
    if damage == "brackets without end":
        path.write_bytes(gzip.compress(b"[" * 1_000_000))
    else:
        attributes = {str(number): random.Random(number).randbytes(20).hex() for number in range(200)}
        snapshots.write(path, Snapshot(1.0, {NodeName("n"): NodeFacts(NodeName("n"), 1.0, attributes=attributes)}))
        data = bytearray(path.read_bytes())
        middle = len(data) // 2
        data[middle : middle + 40] = b"\xff" * 40
        if damage == "bytes inside":
            path.write_bytes(data)
        else:
            monkeypatch.setattr(snapshots, "_LONGEST", 1000)
    with pytest.raises(errors.InputError):
        snapshots.read(path)


JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(max_size=8),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(max_size=4), inner),
    max_leaves=8,
)


@hypothesis.given(JSON)
@hypothesis.settings(deadline=None, max_examples=60)
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: object) -> None:
    def turned(part: object) -> object:
        if isinstance(part, dict):
            return {key: turned(part[key]) for key in reversed(part)}
        return [turned(one) for one in part] if isinstance(part, list) else part

    assert canonical.text(turned(value)) == canonical.text(value)
    assert canonical.text(json.loads(canonical.text(value))) == canonical.text(value)


def test_a_float_has_no_canonical_form() -> None:
    with pytest.raises(TypeError):
        canonical.digest({"a": [1.5]})


def test_the_job_digest_moves_with_pins_of_scope_job_and_domain_only() -> None:
    lock = load.lock("2026-09-lab-gb200", "debian-12-amd64")
    job = canonical.job(lock.pins)
    assert job == lock.job
    for pin in lock.pins:
        changed = [one.model_copy(update={"version": "0.0"}) if one is pin else one for one in lock.pins]
        assert (canonical.job(changed) != job) is (pin.scope is not Scope.NODE), pin.component
        assert canonical.job(list(reversed(lock.pins))) == job
