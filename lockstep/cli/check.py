"""`lockstep check`: read a fleet's files and report every mistake."""

from __future__ import annotations

import json
from typing import Annotated

import rich.console
import typer

from lockstep.base import errors, issues, settings
from lockstep.cli import options

__all__ = ["command"]


def command(
    fleet: options.FleetArgument,
    output: Annotated[str, typer.Option("--format", help="text or json.", metavar="FORMAT")] = "text",
) -> None:
    """Read a fleet's files and report every mistake at once: fleet, SKUs, pinsets, locks. Contacts nothing.

    Exit 0 when all is sound (warnings are printed), 2 with every error, its file, line and remedy.

    \b
    Example:
      lockstep check lab
      lockstep check ./my-fleet.yaml --format json
    """
    from inventory import load
    from pinsets import checks
    from pinsets import load as pinset_files

    options.one_of(output, "text", "json")
    places = settings.load()
    report = issues.Report()
    found = load.read(fleet, places, report, checks.CHECKS)
    if output == "json":
        print(json.dumps({"fleet": fleet, "issues": [_entry(issue) for issue in report.ordered()]}, indent=2))
        if report.errors:
            raise typer.Exit(int(errors.ExitCode.BAD_INPUT))
        return
    report.raise_if_errors(f"fleet {fleet}")
    assert found is not None  # noqa: S101 - without errors there is a fleet
    console = rich.console.Console(highlight=False, soft_wrap=True)
    for issue in report.ordered():
        console.print(issue.text(), markup=False)
    locks = pinset_files.fleet_locks(found, pinset_files.default_catalogue(places.checkout))
    domains = {node.domain for node in found.nodes}
    console.print(
        f"fleet {found.name}: {len(found.pools)} pools, {len(found.nodes)} nodes, {len(domains)} NVLink domains; "
        f"nothing wrong" + (f", {len(report.warnings)} warnings" if report.warnings else ""),
        markup=False,
    )
    for pool in found.pools:
        lock = locks[pool.name]
        console.print(
            f"  {pool.name}: {len(pool.nodes)} nodes, {lock.pinset}@{lock.os}, lock {lock.full[:16]}", markup=False
        )


def _entry(issue: issues.Issue) -> dict[str, object]:
    return {
        "path": issue.path,
        "line": issue.line,
        "severity": issue.severity.value,
        "message": issue.message,
        "hint": issue.hint,
    }
