"""`lockstep audit diff` and `audit merge`: stored snapshots compared with each other, and parts of a fleet joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli import audit_forms, audit_work, options

if TYPE_CHECKING:
    from bringup.changes import Changes

__all__ = ["diff", "merge"]

_FORMS = ("table", "json")


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="The earlier snapshot (`audit --save`, or stored).")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The later one.")],
    format_: Annotated[str, typer.Option("--format", metavar="|".join(_FORMS), help="Form of the output.")] = "table",
) -> None:
    """What changed between two stored snapshots, nodes that changed alike together. Exit 1 when something did.

    \b
    lockstep audit diff monday.jsonl.gz tuesday.jsonl.gz
    """
    options.one_of(format_, *_FORMS)
    from bringup import changes
    from pinsets import snapshots

    found = changes.between(snapshots.read(before), snapshots.read(after))
    typer.echo(_json(found) if format_ == "json" else _text(found))
    if found.any:
        raise typer.Exit(1)


def _json(found: Changes) -> str:
    return json.dumps(
        {
            "groups": [
                {
                    "nodes": list(group.nodes),
                    "changes": [{"at": at, "before": old, "after": new} for at, old, new in group.changes],
                }
                for group in found.groups
            ],
            "added": list(found.added),
            "gone": list(found.gone),
            "same": found.same,
        },
        indent=2,
        ensure_ascii=True,
    )


def _text(found: Changes) -> str:
    from lockstep.base import hostranges
    from lockstep.base.plaintext import visible

    lines = []
    for group in found.groups:
        lines.append(hostranges.fold(group.nodes))
        lines += [f"  {at}: {old} → {new}" for at, old, new in group.changes]
    for word, names in (("new here", found.added), ("gone", found.gone)):
        if names:
            lines.append(f"{word}: {hostranges.fold(names)}")
    lines.append(f"{found.same} nodes unchanged")
    return "\n".join(visible(line) for line in lines)


def merge(
    parts: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Snapshots that `audit --shard … --save` wrote.")
    ],
    fleet: Annotated[
        str | None, typer.Option("--fleet", help="The fleet they are of; without it the majority is the baseline.")
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Write the joined snapshot to this file.")] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="|".join(audit_forms.FORMS), help="Form of the output.")
    ] = "table",
    output: options.OutputOption = None,
    strict: options.StrictOption = False,
    fail_on: options.FailOnOption = "block",
    max_unreachable: options.MaxUnreachableOption = None,
) -> None:
    """Join the snapshots of the parts of a fleet and audit the whole. Nodes of the fleet in no part are not measured.

    \b
    lockstep audit lab --shard 1/2 --save part-1.jsonl.gz
    lockstep audit lab --shard 2/2 --save part-2.jsonl.gz
    lockstep audit merge part-*.jsonl.gz --fleet lab
    """
    options.one_of(format_, *audit_forms.FORMS)
    options.one_of(fail_on, "block", "warn", "info", option="--fail-on")
    options.writable(output, save)
    from bringup import audit, baselines, reading, shards
    from lockstep.base import settings
    from pinsets import snapshots

    joined = shards.merged([snapshots.read(path) for path in parts])
    source = f"{len(parts)} snapshots joined"
    if fleet is not None:
        from inventory import load
        from pinsets import checks

        given = settings.load()
        file = load.fleet(fleet, given, more=checks.CHECKS)
        found = audit.of_fleet(file, reading.recompared(file, given.of_fleet(file.name), joined, source))
    else:
        found = audit.of_hosts(reading.compared(joined, baselines.Baseline(), source))
    if save is not None:
        snapshots.write(save, joined)
    code = audit_work.exit_code(found, strict=strict, fail_on=fail_on, max_unreachable=max_unreachable)
    audit_forms.show(found, code, format_, output)
    if code:
        raise typer.Exit(int(code))
