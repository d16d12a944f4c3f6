"""The verdict over the reports of a job's ranks, case by case; reports that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from bringup.injob import judge, reports
from bringup.injob.reports import Report

CASES = sorted((Path(__file__).parents[2] / "data" / "preflight").glob("*.yaml"))


def _report(rank: int, case: dict[str, Any]) -> Report:
    values = case["ranks"].get(rank, case.get("everyone", {}))
    return Report(
        rank,
        case["world"],
        f"host-{rank}",
        "s",
        f"n{rank}",
        dict(values),
        dict(case.get("unreadable", {}).get(rank, {})),
        dict(case.get("files", {}).get(rank, {})),
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_verdict_of(path: Path) -> None:
    case = YAML(typ="safe").load(path.read_text())
    ranks = range(case["world"]) if "everyone" in case else case["ranks"]
    verdict = judge.judge([_report(rank, case) for rank in ranks], case["world"])
    assert verdict.lines() == case["lines"]
    assert verdict.exit_code == case["exit"]


def test_there_are_cases() -> None:
    assert len(CASES) >= 10


texts = st.dictionaries(st.text(max_size=20), st.text(max_size=40), max_size=4)


@given(st.integers(0, 99), st.text(max_size=10), texts, texts)
def test_a_report_comes_back_as_it_was_sent(
    rank: int, host: str, values: dict[str, str], files: dict[str, str]
) -> None:
    sent = Report(rank, 100, host, "s", "n", values, {"a@running": "why"}, files, mapped=True)
    assert reports.from_json(reports.to_json(sent)) == sent


@given(st.binary(max_size=200))
def test_bytes_that_are_no_report_are_refused_with_a_sentence(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        reports.from_json(data)


def test_a_report_that_floods_is_refused() -> None:
    with pytest.raises(ValueError, match="more than"):
        reports.from_json(b" " * (reports.BYTES + 1))


@pytest.mark.parametrize("key", ["host", "attempt", "nonce", "values", "files", "rank", "world"])
def test_a_report_without_a_part_of_it_is_refused(key: str) -> None:
    import json

    whole = json.loads(reports.to_json(Report(1, 2, "h", "s", "n")))
    whole[key] = None
    with pytest.raises(ValueError, match=r"rank|no short text|no table"):
        reports.from_json(json.dumps(whole).encode())
