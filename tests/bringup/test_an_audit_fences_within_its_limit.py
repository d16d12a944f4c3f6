"""`audit --fence` on a real API server: what deviates takes no new jobs, within the limit of one run."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from lightkube.resources.core_v1 import Node

from bringup import auditfence, cluster_views, joining, reading
from bringup.transport.base import Failure, FailureKind
from bringup.transport.fake import Answer, Fake
from inventory import load
from inventory.model import Fleet
from lab.control_plane_testing import Plane
from lockstep.base import settings
from tests.bringup import answers

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("applied")]

OLD = "580.126.20"
NAMES = tuple(f"fence-{index}" for index in range(1, 7))


@pytest.fixture
def given(tmp_path: Path) -> settings.Settings:
    """State of its own, no checkout."""
    return settings.Settings(None, tmp_path / "state", tmp_path / "cache", tmp_path / "labs")


@pytest.fixture
def nodes(plane: Plane) -> Iterator[None]:
    """Six admitted Nodes: registered, without our taint."""
    plane.apply([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in NAMES])
    yield
    with plane.client() as client:
        for name in NAMES:
            client.delete(Node, name)


def _fleet(tmp_path: Path, given: settings.Settings) -> Fleet:
    path = answers.fleet_file(tmp_path, dict.fromkeys(NAMES, ""))
    text = path.read_text()
    for index in range(len(NAMES)):
        # Three domains of two: one run may fence two nodes.
        place = f"127.90.98.{index + 1}, domain: r"
        text = text.replace(f"{place}1", f"{place}{index // 2 + 1}")
    path.write_text(text)
    return load.fleet(str(path), given)


def _fenced(plane: Plane) -> set[str]:
    with plane.client() as client:
        return {
            node.metadata.name
            for node in client.list(Node)
            if node.metadata is not None
            and node.metadata.name in NAMES
            and node.spec is not None
            and any(taint.key == cluster_views.FENCED for taint in node.spec.taints or ())
        }


def _in_domain(answer: Answer, number: int) -> Answer:
    """The answer with the fabric of its rack: three domains have three."""
    if isinstance(answer, Failure):
        return answer
    lines = []
    for line in answer.splitlines():
        value = json.loads(line)
        if value.get("id") == "smi":
            text = base64.b64decode(value["out"]).decode().replace(answers.CLUSTER, answers.CLUSTER[:-1] + str(number))
            value["out"] = base64.b64encode(text.encode()).decode()
        lines.append(json.dumps(value).encode())
    return b"\n".join(lines)


def _read(fleet: Fleet, given: settings.Settings, odd: dict[str, Answer]) -> reading.Reading:
    found: dict[str, Answer] = {
        name: _in_domain(odd.get(name, answers.answer(name)), index // 2 + 1) for index, name in enumerate(NAMES)
    }
    return reading.read_fleet(fleet, given, transport=Fake(found), store=False)


def test_one_run_fences_no_more_than_one_domain_and_says_what_it_left(
    plane: Plane, nodes: None, tmp_path: Path, given: settings.Settings
) -> None:
    fleet = _fleet(tmp_path, given)
    # Each deviates in its own way: the same value on three of six would be a common cause.
    odd: dict[str, Answer] = {
        "fence-1": answers.answer("1", nccl="2.27.7"),
        "fence-3": answers.answer("3", nccl="2.27.6"),
        "fence-5": answers.answer("5", nccl="2.27.5"),
    }
    cluster = joining.from_environment(given, {}, plane.kubeconfig)
    told = auditfence.fence(fleet, _read(fleet, given, odd), given, cluster, [])
    assert len(_fenced(plane)) == 2
    assert _fenced(plane) < set(odd)
    assert any("1 more nodes deviate and were not fenced" in text for text in told)


def test_what_did_not_answer_and_what_has_a_common_cause_is_not_fenced(
    plane: Plane, nodes: None, tmp_path: Path, given: settings.Settings
) -> None:
    fleet = _fleet(tmp_path, given)
    cluster = joining.from_environment(given, {}, plane.kubeconfig)
    silent: dict[str, Answer] = {"fence-1": Failure(FailureKind.REFUSED, "nothing listens on port 22")}
    assert auditfence.fence(fleet, _read(fleet, given, silent), given, cluster, []) == [
        "pool blackwell: nothing to fence (limit 2 nodes a run)"
    ]
    same: dict[str, Answer] = {name: answers.answer(name, nccl="2.27.7") for name in NAMES[:4]}
    auditfence.fence(fleet, _read(fleet, given, same), given, cluster, [])
    assert _fenced(plane) == set()
