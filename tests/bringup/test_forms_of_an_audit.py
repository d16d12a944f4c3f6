"""Every form of an audit: what its schema or its specification asks for, and nothing of what hostile machines say.

SARIF is validated by models made from its whole JSON schema (fluidattacks-core-sarif). JUnit and CTRF are held to
strict models of our own here, and to the schemas that others publish in test_forms_fit_published_schemas.py.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import jsonschema
import pytest
from fluidattacks_core import sarif as sarif_models

from bringup import (
    audit,
    known,
    report,
    report_ctrf,
    report_html,
    report_junit,
    report_lines,
    report_prometheus,
    report_sarif,
)
from lockstep.base.errors import ExitCode
from lockstep.cli import audit_table
from pinsets.findings import Severity
from tests.bringup import hostile

CODE = ExitCode.DRIFT


def _lines(found: audit.Audit) -> str:
    return "\n".join(report_lines.lines(report.report(found, CODE)))


def _table(found: audit.Audit) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        audit_table.show(found, CODE)
    return printed.getvalue()


FORMS: dict[str, Callable[[audit.Audit], str]] = {
    "table": _table,
    "json": lambda found: report.text(report.report(found, CODE)),
    "jsonl": _lines,
    "junit": report_junit.junit,
    "sarif": lambda found: report_sarif.sarif(found, CODE),
    "ctrf": report_ctrf.ctrf,
    "prometheus": lambda found: report_prometheus.prometheus(found, CODE),
    "html": lambda found: report_html.page(found, CODE),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_form_lets_a_machine_speak_to_the_terminal(form: str) -> None:
    text = FORMS[form](hostile.found())
    assert "gpu-" in text
    for character in text:
        category = unicodedata.category(character)
        assert category not in ("Cc", "Cf", "Cs") or character in "\n\t", f"{character!r} in {form}"


def test_what_is_hidden_is_written_out_and_not_dropped() -> None:
    assert r"\x1b[2J" in _table(hostile.found())
    assert r"\x9b31m" in _table(hostile.found())


def test_sarif_fits_the_whole_schema_of_2_1_0(tmp_path: Path) -> None:
    found = hostile.found()
    data = json.loads(FORMS["sarif"](found))
    read = sarif_models.SarifLog.model_validate(data)
    (run,) = read.runs
    assert run.tool.driver.name == "lockstep"
    assert run.results is not None
    assert [result.level for result in run.results] == [sarif_models.Level.ERROR] * 5
    for result in data["runs"][0]["results"]:
        assert data["runs"][0]["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    with pytest.raises(ValueError, match="extra"):
        sarif_models.SarifLog.model_validate({**data, "unknown": 1})


def test_sarif_places_a_result_at_the_nodes_line_of_the_fleet_file(tmp_path: Path) -> None:
    found = dataclasses.replace(hostile.found(), path=tmp_path / "a fleet.yaml")
    result = json.loads(FORMS["sarif"](found))["runs"][0]["results"][0]
    place = result["locations"][0]["physicalLocation"]
    assert place["region"]["startLine"] == 9
    assert place["artifactLocation"]["uri"].endswith("/a%20fleet.yaml")
    assert sarif_models.SarifLog.model_validate(json.loads(FORMS["sarif"](found)))


def test_a_fleet_file_of_any_name_is_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = dataclasses.replace(hostile.found(), path=tmp_path / "a#b?%41 ü.yaml")
    result = json.loads(FORMS["sarif"](found))["runs"][0]["results"][0]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "a%23b%3F%2541%20%C3%BC.yaml"


def test_one_deviation_stays_one_alert_while_it_spreads() -> None:
    few = hostile.found({"gpu-1": "1.0"})
    many = hostile.found({"gpu-1": "1.0"})
    spread = hostile.finding("1.0", ("gpu-1", "gpu-2"))
    pool = many.pools[0]
    many = dataclasses.replace(
        many,
        pools=(dataclasses.replace(pool, comparison=dataclasses.replace(pool.comparison, findings=(spread,))),),
    )

    def prints(found: audit.Audit) -> list[object]:
        return [one["partialFingerprints"] for one in json.loads(FORMS["sarif"](found))["runs"][0]["results"]]

    assert prints(few) == prints(many)


# JUnit as its readers take it: elements and attributes of the Jenkins/Surefire form, nothing else.
JUNIT = {
    "testsuites": ({"name", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped"}, {"testcase", "system-out"}),
    "testcase": ({"classname", "name"}, {"failure", "error", "skipped"}),
    "failure": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "skipped": ({"message"}, set()),
    "system-out": (set(), set()),
}


def _strict(element: ElementTree.Element) -> None:
    attributes, children = JUNIT[element.tag]
    assert set(element.attrib) == attributes, element.tag
    for child in element:
        assert child.tag in children
        _strict(child)
    for counted in {"tests", "failures", "errors", "skipped"} & attributes:
        tag = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}[counted]
        assert int(element.attrib[counted]) == sum(1 for _ in element.iter(tag))


def test_junit_has_the_elements_and_attributes_that_its_readers_know() -> None:
    root = ElementTree.fromstring(FORMS["junit"](hostile.found()))
    assert root.tag == "testsuites"
    _strict(root)


_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 0}
CTRF = {
    "type": "object",
    "additionalProperties": False,
    "required": ["reportFormat", "specVersion", "results"],
    "properties": {
        "reportFormat": {"const": "CTRF"},
        "specVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "generatedBy": _TEXT,
        "results": {
            "type": "object",
            "additionalProperties": False,
            "required": ["tool", "summary", "tests"],
            "properties": {
                "tool": {"type": "object", "required": ["name"], "properties": {"name": _TEXT, "version": _TEXT}},
                "summary": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["tests", "passed", "failed", "pending", "skipped", "other", "start", "stop"],
                    "properties": dict.fromkeys(
                        ("tests", "passed", "failed", "pending", "skipped", "other", "start", "stop"), _COUNT
                    ),
                },
                "tests": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["name", "status", "duration"],
                        "properties": {
                            "name": _TEXT,
                            "status": {"enum": ["passed", "failed", "skipped", "pending", "other"]},
                            "duration": {"type": "number", "minimum": 0},
                            "suite": {"type": "array", "items": _TEXT},
                            **dict.fromkeys(("message", "trace", "rawStatus", "type"), _TEXT),
                        },
                    },
                },
            },
        },
    },
}


def test_ctrf_fits_its_specification_and_its_counts_agree() -> None:
    data = json.loads(FORMS["ctrf"](hostile.found()))
    jsonschema.validate(data, CTRF)
    summary, tests = data["results"]["summary"], data["results"]["tests"]
    assert summary["tests"] == len(tests) == 6
    for status in ("passed", "failed", "pending", "skipped", "other"):
        assert summary[status] == sum(test["status"] == status for test in tests)


def test_json_lines_are_the_json_report_one_object_a_line() -> None:
    found = hostile.found()
    whole = report.report(found, CODE).model_dump(mode="json")
    lines = [json.loads(line) for line in FORMS["jsonl"](found).splitlines()]
    kinds = [next(key for key in ("audit", "node", "finding", "pool") if key in line) for line in lines]
    assert kinds == ["audit", "pool", *["node"] * 6, *["finding"] * 5]
    nodes = [{"name": line.pop("node"), **line} for line in lines if "node" in line]
    assert [{key: value for key, value in node.items() if key != "pool"} for node in nodes] == whole["pools"][0][
        "nodes"
    ]


_SAMPLE = re.compile(r'(lockstep_[a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (-?[0-9.e+]+)')


def test_prometheus_text_is_read_line_by_line() -> None:
    text = FORMS["prometheus"](hostile.found())
    families: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            families[line.split()[2]] = 0
        elif not line.startswith("# HELP "):
            match = _SAMPLE.fullmatch(line)
            assert match, line
            families[match[1]] += 1
    assert families["lockstep_audit_node_deviates"] == 5
    assert families["lockstep_audit_nodes"] == 10
    assert families["lockstep_audit_timestamp_seconds"] == 1
    assert text.endswith("\n")


def test_what_a_report_named_is_left_out_and_changes_no_exit_code(tmp_path: Path) -> None:
    found = hostile.found({"gpu-1": "1.0", "gpu-2": "2.0"})
    before = tmp_path / "before.json"
    before.write_text(FORMS["json"](hostile.found({"gpu-1": "1.0"})))
    rest = known.without(found, known.of_report(before), "before.json")
    assert [one.nodes for one in rest.pools[0].comparison.findings] == [("gpu-2",)]
    assert rest.known == 1
    assert audit.exit_code(rest) is ExitCode.DRIFT
    before.write_text(FORMS["json"](found))
    nothing = known.without(found, known.of_report(before), "before.json")
    assert audit.exit_code(nothing) is ExitCode.IN_STEP
    assert "2 known deviations of before.json are left out" in _table(nothing)
    junit = ElementTree.fromstring(report_junit.junit(nothing))
    assert junit.get("failures") == "0"


@pytest.mark.parametrize("form", [form for form in FORMS if form != "prometheus"])
def test_a_waiver_stands_in_every_report_with_its_reason_and_its_last_day(form: str) -> None:
    text = FORMS[form](hostile.waived())
    assert "OPS-77" in text
    assert "2026-12-31" in text
    assert 'id="waived.pin.driver"' in FORMS["prometheus"](hostile.waived())


def test_a_waived_deviation_is_a_suppressed_result() -> None:
    data = json.loads(FORMS["sarif"](hostile.waived()))
    (result,) = data["runs"][0]["results"]
    assert result["level"] == "note"
    assert result["suppressions"] == [{"kind": "external", "justification": "waived until 2026-12-31: OPS-77"}]
    assert sarif_models.SarifLog.model_validate(data)


def test_what_could_not_be_measured_is_never_known(tmp_path: Path) -> None:
    found = hostile.found({"gpu-1": "1.0"})
    one = found.pools[0].comparison.findings[0]
    silent = dataclasses.replace(one, id="unreachable")
    pool = found.pools[0]
    found = dataclasses.replace(
        found, pools=(dataclasses.replace(pool, comparison=dataclasses.replace(pool.comparison, findings=(silent,))),)
    )
    before = tmp_path / "before.json"
    before.write_text(FORMS["json"](found))
    assert known.without(found, known.of_report(before), "x").pools[0].comparison.findings == (silent,)


def test_a_severity_that_is_limited_to_a_use_says_so_in_every_form_for_people() -> None:
    found = hostile.found({"gpu-1": "1.0"})
    pool = found.pools[0]
    one = dataclasses.replace(pool.comparison.findings[0], use="rdma", doubtful=True, severity=Severity.WARN)
    found = dataclasses.replace(
        found, pools=(dataclasses.replace(pool, comparison=dataclasses.replace(pool.comparison, findings=(one,))),)
    )
    assert "for rdma" in _table(found)
    assert "for rdma, doubtful" in FORMS["html"](found)
    assert json.loads(FORMS["json"](found))["pools"][0]["findings"][0]["use"] == "rdma"
