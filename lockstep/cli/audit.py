"""`lockstep audit`: read every node and GPU and say which deviate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli import options, progress

if TYPE_CHECKING:
    from bringup.audit import Audit
    from bringup.transport.base import Patience
    from lockstep.base.settings import Settings

__all__ = ["command"]


def command(
    fleet: Annotated[
        str | None,
        typer.Argument(metavar="[FLEET]", help="A name in inventory/fleets/, or the path of a fleet file."),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--hosts", help="Hosts or host ranges without a fleet file, such as 'gpu-[001-512]'; repeatable."),
    ] = None,
    like: Annotated[
        str | None, typer.Option("--like", help="With --hosts: compare with this host instead of the majority.")
    ] = None,
    pool: options.PoolOption = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", help="Only these nodes: names or ranges; may be repeated.")
    ] = None,
    facts: Annotated[
        str | None,
        typer.Option(
            "--facts",
            metavar="ssh|snapshot|PATH",
            help="ssh: read now (default). snapshot: the newest stored one. A path: a stored snapshot, or a folder "
            "of probe outputs NODE.jsonl. LOCKSTEP_FACTS says the same.",
        ),
    ] = None,
    format_: Annotated[str, typer.Option("--format", metavar="table|json|junit", help="Form of the output.")] = "table",
    strict: options.StrictOption = False,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="block|warn|info", help="Least severity that makes exit code 1.")
    ] = "block",
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=1, help="Hard limit per host in seconds (30); twice that in the second pass."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write the snapshot to this file (.jsonl.gz).")
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(
            "--sign", metavar="KEY", help="Private key: write a signed statement about every node that answered."
        ),
    ] = None,
    statements: Annotated[
        Path, typer.Option("--statements", metavar="FOLDER", help="Where --sign writes NODE.intoto.json.")
    ] = Path("statements"),
) -> None:
    """Read every node and GPU, and say which deviate from their lock or from each other.

    One script per node over SSH; nothing is written on the nodes' disks, host keys are always verified. Exit codes:
    0 in step, 1 drift or skew, 2 bad input, 3 could not measure, 130 interrupted.

    \b
    lockstep audit lab
    lockstep audit lab --pool blackwell --node 'gpu-[001-002]' --format json
    lockstep audit --hosts 'gpu-[001-512]' --like gpu-001
    """
    options.one_of(format_, "table", "json", "junit")
    options.one_of(fail_on, "block", "warn", "info", option="--fail-on")
    if (fleet is None) == (not hosts):
        raise typer.BadParameter("give a FLEET, or --hosts", param_hint="FLEET")
    if hosts and (pool or node or facts):
        raise typer.BadParameter("--pool, --node and --facts need a FLEET", param_hint="--hosts")
    if fleet and like:
        raise typer.BadParameter("--like needs --hosts", param_hint="--like")
    from lockstep.base import settings

    if sign is not None:
        from pinsets import signing

        # A key that cannot sign is said before a thousand nodes are read.
        signing.private_key(sign)
    given = settings.load()
    with progress.Bar("reading") as bar:
        if fleet is not None:
            found = _fleet(fleet, given, bar, pool, node, facts, _patience(timeout))
        else:
            found = _hosts(hosts or [], bar, like, _patience(timeout))
    if sign is not None:
        _sign(found, sign, statements)
    _end(found, format_, strict, fail_on, save)


def _sign(found: Audit, key: Path, folder: Path) -> None:
    from bringup import attesting

    written = attesting.write(found, key, folder)
    typer.echo(f"{folder}: {len(written)} signed statements; check them with `lockstep verify`", err=True)


def _patience(timeout: float | None) -> Patience | None:
    from bringup.transport import base

    return base.Patience.within(timeout) if timeout is not None else None


def _fleet(
    name: str,
    settings: Settings,
    bar: progress.Bar,
    pools: list[str] | None,
    nodes: list[str] | None,
    facts: str | None,
    patience: Patience | None,
) -> Audit:
    from bringup import audit, reading
    from inventory import load
    from lockstep.base import hostranges
    from pinsets import checks

    fleet = load.fleet(name, settings, more=checks.CHECKS)
    settings = settings.of_fleet(fleet.name)
    wanted = [unfolded for pattern in nodes or () for unfolded in hostranges.unfold(pattern, place="--node")]
    # A fleet file somewhere on a disk is no reason to leave a folder beside the user's work.
    keep = settings.checkout is not None or settings.state.is_dir()
    read = reading.read_fleet(
        fleet,
        settings,
        pools=pools,
        nodes=wanted or None,
        facts=facts,
        progress=bar.advance,
        patience=patience,
        store=keep,
    )
    return audit.of_fleet(fleet, read)


def _hosts(patterns: list[str], bar: progress.Bar, like: str | None, patience: Patience | None) -> Audit:
    from bringup import audit, reading
    from lockstep.base import hostranges

    names = [name for pattern in patterns for name in hostranges.unfold(pattern, place="--hosts")]
    read = reading.read_hosts(list(dict.fromkeys(names)), like=like, progress=bar.advance, patience=patience)
    return audit.of_hosts(read)


def _end(found: Audit, form: str, strict: bool, fail_on: str, save: Path | None) -> None:
    from bringup import audit
    from pinsets import findings, snapshots

    least = {"block": (), "warn": ("warn",), "info": ("warn", "info")}[fail_on]
    code = audit.exit_code(found, strict=strict, fail_on=frozenset(findings.Severity(word) for word in least))
    if save is not None:
        snapshots.write(save, found.reading.snapshot)
    if form == "json":
        from bringup import report

        typer.echo(report.report(found, code).model_dump_json(indent=2))
    elif form == "junit":
        from bringup import report_junit

        typer.echo(report_junit.junit(found), nl=False)
    else:
        from lockstep.cli import audit_table

        audit_table.show(found, code)
    if code:
        raise typer.Exit(int(code))
