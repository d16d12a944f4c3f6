"""What a person is shown of many findings: what says the same is said once, and nothing is lost in documents."""

from __future__ import annotations

import dataclasses

import pytest

from bringup import audit, reading, report, rows
from bringup.transport.base import Failure, FailureKind
from bringup.transport.fake import Answer, Fake
from lockstep.base.errors import ExitCode
from pinsets.findings import Verdict
from tests.bringup import answers


def _audit(nodes: dict[str, Answer]) -> audit.Audit:
    return audit.of_hosts(reading.read_hosts(list(nodes), transport=Fake(dict(nodes))))


def _unknown(node: str) -> Failure:
    return Failure(FailureKind.HOST_KEY_UNKNOWN, f"{node} offers SHA256:{node}", remedy=f"ssh-keyscan {node}")


@pytest.mark.parametrize(("count", "shown"), [(3, 3), (4, 1), (40, 1)])
def test_many_nodes_that_do_not_answer_for_one_kind_of_reason_are_one_row(count: int, shown: int) -> None:
    names = [f"gpu-{number:03}" for number in range(1, count + 1)]
    found = _audit(
        {"good": answers.answer("1"), "off": Failure(FailureKind.REFUSED, "port 22"), **{n: _unknown(n) for n in names}}
    )
    (pool,) = found.pools
    told = [one for _, one in rows.rows(pool.comparison.findings) if "host key" in one.observed]
    assert len(told) == shown
    assert [str(node) for one in told for node in one.nodes] == names
    assert "ssh-keyscan gpu-001" in told[0].remedy
    assert ("for gpu-001: " in told[0].remedy) is (shown == 1)
    silent = [group for group in rows.alike(pool.groups) if group.verdict is Verdict.UNREACHABLE]
    assert len(silent) == shown + 1, "another reason stays by itself"
    assert sum(len(group.nodes) for group in silent) == count + 1
    document = report.text(report.report(found, ExitCode.NOT_MEASURED))
    assert all(f"{name} offers SHA256:{name}" in document for name in names)


def test_all_that_a_node_could_not_be_asked_for_one_reason_is_one_row() -> None:
    whole = answers.answer("1").splitlines(keepends=True)
    cut = b"".join(whole[: len(whole) // 2])
    found = _audit({**{f"gpu-{number}": answers.answer(str(number)) for number in range(1, 6)}, "cut": cut})
    findings = found.pools[0].comparison.findings
    gaps = [one for one in findings if one.id.startswith("unreadable.")]
    told = rows.rows(findings)
    shown = [(places, one) for places, one in told if one.observed.startswith("unreadable")]
    assert len(gaps) > 5
    assert len(shown) == len({one.observed for one in gaps})
    assert {place for places, _ in shown for place in places.split()} == {str(one.coordinate) for one in gaps}


def test_what_differs_in_more_than_its_place_stays_apart() -> None:
    found = _audit(
        {
            **{f"gpu-{number}": answers.answer(str(number)) for number in range(1, 6)},
            "odd": answers.answer("6", nccl="2.27.7"),
        }
    )
    findings = found.pools[0].comparison.findings
    for one in findings:
        other = dataclasses.replace(one, expected="2.26.2")
        assert len(rows.rows([one, other])) == 2
