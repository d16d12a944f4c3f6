"""`lockstep up`: an environment into step, through the engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import rich.console
import rich.table
import rich.text
import typer

from lockstep.base import errors
from lockstep.cli import options

if TYPE_CHECKING:
    from stacks import automation

__all__ = ["command"]


def command(
    fleet: options.FleetArgument,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what would be done, from live facts; touch nothing.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="KIND[=NODE]", help="A disruption allowed for this run; may be repeated."),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="FINDING", help="A common cause that is real; may be repeated."),
    ] = None,
    shrink: Annotated[
        int | None, typer.Option("--shrink", metavar="N", help="The pool is meant to lose this number of nodes.")
    ] = None,
) -> None:
    """Bring an environment into step through the Pulumi engine.

    The same project, stack, config and state as plain `pulumi` (see `lockstep env`). In-step nodes are never touched;
    others only as the pool's policy and --allow say. A run that was killed goes on where it stopped.

    Exit codes: 0 in step, 1 drift that cannot be mended here (with --preview any change), 4 forbidden or busy, 5 an act
    or the engine failed.

    \b
    Example:
      lockstep up lab
      lockstep up lab --preview
      lockstep up prod --allow reboot --allow reimage=gpu-017
    """
    # Late: `lockstep up --help` should not pay for the engine's SDK.
    from bringup import words
    from lockstep.cli import environments
    from stacks import automation
    from stacks import environments as stack_environments

    words.parse(allow=allow or (), accept=accept or (), shrink=shrink)
    environment = environments.resolve(fleet)
    cluster = environment.variables.get("KUBECONFIG", os.environ.get("KUBECONFIG", ""))
    if cluster:
        # Before a stack is made: the engine would warn, go on, and fail minutes later with many messages.
        stack_environments.need_cluster(Path(cluster), None)
    variables = {**environment.variables, **_spoken(allow or [], accept or [], shrink)}
    console = rich.console.Console(highlight=False)
    act = automation.preview if preview else automation.up
    run = act(environment.stack, environment.where, variables, lambda line: print(line, flush=True), environment.config)
    _summary(console, run)
    raise typer.Exit(int(run.exit_code))


def _spoken(allow: list[str], accept: list[str], shrink: int | None) -> dict[str, str]:
    """The words of this run as the plugin reads them; what was not said is left to the caller's environment."""
    said = {
        "LOCKSTEP_ALLOW": ",".join(allow),
        "LOCKSTEP_ACCEPT": ",".join(accept),
        "LOCKSTEP_SHRINK": "" if shrink is None else str(shrink),
    }
    return {name: value for name, value in said.items() if value}


def _summary(console: rich.console.Console, run: automation.Run) -> None:
    """What stays out of step, node by node, and why the engine stopped."""
    rows = [(outcome.pool, node, why) for outcome in run.outcomes for node, why in outcome.nodes.items()]
    if rows:
        table = rich.table.Table(box=None, header_style="bold", pad_edge=False)
        for title in ("POOL", "NODE", "NOT IN STEP"):
            table.add_column(title, overflow="fold")
        for row in rows:
            # As Text: brackets of a coordinate (`firmware.gpu[gpu3]`) are markup to rich.
            table.add_row(*(rich.text.Text(cell) for cell in row))
        console.print(table)
    for outcome in run.outcomes:
        if outcome.error:
            console.print(f"{outcome.pool}: {outcome.error}", markup=False)
    if run.exit_code is errors.ExitCode.INTERNAL and run.error:
        console.print(run.error, markup=False)
