"""Every error says what, where and what to do; one exit code when several apply."""

from __future__ import annotations

import pytest

from lockstep.base import errors, issues

ExitCode = errors.ExitCode


@pytest.mark.parametrize(
    ("codes", "strict", "expected"),
    [
        ([], False, ExitCode.IN_STEP),
        ([ExitCode.DRIFT, ExitCode.NOT_MEASURED], False, ExitCode.DRIFT),
        ([ExitCode.DRIFT, ExitCode.NOT_MEASURED], True, ExitCode.NOT_MEASURED),
        ([ExitCode.REFUSED, ExitCode.DRIFT], False, ExitCode.REFUSED),
        ([ExitCode.BAD_INPUT, ExitCode.REFUSED], False, ExitCode.BAD_INPUT),
        ([ExitCode.INTERNAL, ExitCode.BAD_INPUT], True, ExitCode.INTERNAL),
        ([ExitCode.INTERRUPTED, ExitCode.INTERNAL], False, ExitCode.INTERRUPTED),
    ],
)
def test_when_several_codes_apply_the_table_decides(codes: list[ExitCode], strict: bool, expected: ExitCode) -> None:
    assert errors.combine(codes, strict=strict) is expected


def test_an_error_reads_place_message_and_remedy() -> None:
    error = errors.RefusedError("the budget is spent", place="pool p", hint="wait for gpu-1")
    assert error.diagnostics() == "pool p: the budget is spent\n  hint: wait for gpu-1"
    assert error.exit_code is ExitCode.REFUSED


def test_a_report_with_warnings_alone_raises_nothing() -> None:
    report = issues.Report()
    report.warning("f.yaml", 3, "odd", "look")
    report.raise_if_errors("fleet f")
    assert [issue.text() for issue in report.warnings] == ["f.yaml:3: warning: odd (look)"]


def test_a_report_raises_once_with_everything_in_file_and_line_order() -> None:
    report = issues.Report()
    report.error("b.yaml", 1, "second file")
    report.error("a.yaml", 9, "later")
    report.error("a.yaml", 2, "sooner")
    with pytest.raises(errors.InputError) as caught:
        report.raise_if_errors("fleet f")
    assert caught.value.diagnostics().splitlines() == [
        "a.yaml:2: error: sooner",
        "a.yaml:9: error: later",
        "b.yaml:1: error: second file",
        "fleet f: 3 errors; nothing was touched",
    ]
