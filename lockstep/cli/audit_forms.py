"""The forms an audit is printed in: one name each, and where it goes. Imports a form only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from bringup.audit import Audit
    from lockstep.base.errors import ExitCode

__all__ = ["FORMS", "show"]


def _json(found: Audit, code: ExitCode) -> str:
    from bringup import report

    return report.text(report.report(found, code)) + "\n"


def _jsonl(found: Audit, code: ExitCode) -> str:
    from bringup import report, report_lines

    return "".join(f"{line}\n" for line in report_lines.lines(report.report(found, code)))


def _junit(found: Audit, _: ExitCode) -> str:
    from bringup import report_junit

    return report_junit.junit(found)


def _sarif(found: Audit, code: ExitCode) -> str:
    from bringup import report_sarif

    return report_sarif.sarif(found, code)


def _ctrf(found: Audit, _: ExitCode) -> str:
    from bringup import report_ctrf

    return report_ctrf.ctrf(found)


def _prometheus(found: Audit, code: ExitCode) -> str:
    from bringup import report_prometheus

    return report_prometheus.prometheus(found, code)


def _html(found: Audit, code: ExitCode) -> str:
    from bringup import report_html

    return report_html.page(found, code)


_MAKERS: Final[dict[str, Callable[[Audit, ExitCode], str]]] = {
    "json": _json,
    "jsonl": _jsonl,
    "junit": _junit,
    "sarif": _sarif,
    "ctrf": _ctrf,
    "prometheus": _prometheus,
    "html": _html,
}
FORMS: Final = ("table", *_MAKERS)


def show(found: Audit, code: ExitCode, form: str, output: Path | None) -> None:
    """Print the audit, or write it to ``output`` whole or not at all. Raises `errors.EngineError` for the latter."""
    if form == "table":
        from lockstep.cli import audit_table

        audit_table.show(found, code, output)
        return
    text = _MAKERS[form](found, code)
    if output is None:
        # Documents for machines are UTF-8 whatever the terminal's encoding is.
        typer.echo(text.encode("utf-8"), nl=False)
        return
    from lockstep.base import replacing

    replacing.write(output, text)
