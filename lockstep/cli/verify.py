"""`lockstep verify`: signed statements about nodes, checked without any network."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import rich.console
import rich.table
import typer
from rich.text import Text

from lockstep.base import errors, plaintext
from lockstep.cli import options

if TYPE_CHECKING:
    from pinsets.statements import Statement

__all__ = ["command"]


def command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Statements that `audit --sign` wrote, or folders of them.")
    ],
    key: Annotated[list[Path], typer.Option("--key", help="Public key, PEM or OpenSSH; repeatable: any of them.")],
    max_age: Annotated[str | None, typer.Option("--max-age", help="Older ones are refused, such as 1h or 30m.")] = None,
    lock: Annotated[
        str | None, typer.Option("--lock", metavar="PINSET@OS", help="They must name this committed lock.")
    ] = None,
    facts: Annotated[
        Path | None, typer.Option("--facts", help="They must be about the facts of this stored snapshot.")
    ] = None,
    output: Annotated[str, typer.Option("--format", help="table or json.", metavar="FORMAT")] = "table",
) -> None:
    """Check signed statements about nodes: who signed, whether it holds together, and what verdict it gives.

    Exit 0: all are verified and their nodes in step. 1: all are verified, some node is not in step. 2: one is not
    verified, or not about what was asked. What is not verified is never shown.

    \b
    lockstep verify statements/ --key audit.pub --max-age 1h
    lockstep verify gpu-001.intoto.json --key audit.pub --lock 2026-09-lab-gb200@debian-12-amd64
    """
    from lockstep.base import quantities, settings
    from pinsets import load, signing, snapshots, statements

    options.one_of(output, "table", "json")
    keys = [signing.public_key(path) for path in key]
    seconds = quantities.parse_duration_seconds(max_age) if max_age is not None else None
    wanted = None
    if lock is not None:
        pinset, at, os_name = lock.rpartition("@")
        if not at:
            raise typer.BadParameter("write PINSET@OS", param_hint="--lock")
        wanted = load.lock(pinset, os_name, load.default_catalogue(settings.load().checkout))
    snapshot = {str(name): seen for name, seen in snapshots.read(facts).nodes.items()} if facts is not None else None
    found: list[tuple[Path, Statement]] = []
    wrong: list[str] = []
    for path in _files(files):
        try:
            statement = signing.verify(path, keys)
        except errors.InputError as error:
            wrong.append(error.diagnostics())
            continue
        said = statements.problems(statement, now=time.time(), max_age=seconds, facts=snapshot, lock=wanted)
        wrong += [f"{path}: not verified: {text}" for text in said]
        if not said:
            found.append((path, statement))
    _show(found, output)
    if wrong:
        raise errors.InputError("\n".join(wrong))
    if any(not statement.predicate.verdict.in_step for _, statement in found):
        raise typer.Exit(int(errors.ExitCode.DRIFT))


def _files(given: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(path.glob("*.intoto.json"))
            if not inside:
                raise errors.InputError("holds no statement (*.intoto.json)", place=str(path))
            found += inside
        else:
            found.append(path)
    return found


def _show(found: list[tuple[Path, Statement]], output: str) -> None:
    if output == "json":
        rows = [{"file": str(path), **statement.model_dump(mode="json", by_alias=True)} for path, statement in found]
        print(json.dumps(rows, indent=2))
        return
    table = rich.table.Table(box=None, pad_edge=False)
    for title in ("slot", "node", "serial", "verdict", "lock", "read"):
        table.add_column(title, no_wrap=True)
    for _, statement in found:
        (subject,), predicate = statement.subject, statement.predicate
        lock = predicate.lock.full[:16] if predicate.lock is not None else "–"
        serial = subject.annotations.serial or "–"
        cells = (subject.name, predicate.node, serial, predicate.verdict.value, lock, predicate.observed_at)
        # Serials and names were said by machines.
        table.add_row(*(Text(plaintext.visible(cell)) for cell in cells))
    if found:
        rich.console.Console(highlight=False, soft_wrap=True).print(table)
