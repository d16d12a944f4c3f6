"""`lockstep bringup`: what `up` does to the machines, without Pulumi."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli import options

if TYPE_CHECKING:
    from bringup.results import PoolResult

AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="KIND[=NODE]", help="Allow this kind of disruption for this run; may be repeated."),
]
AcceptOption = Annotated[
    list[str] | None,
    typer.Option("--accept", metavar="FINDING", help="Mend what this common-cause finding names; may be repeated."),
]
ShrinkOption = Annotated[
    int | None, typer.Option("--shrink", metavar="N", help="A pool is meant to lose this many nodes.")
]
KubeconfigOption = Annotated[
    str | None,
    typer.Option("--kubeconfig", help="Cluster to join. Default: KUBECONFIG, else that of the state folder."),
]


def command(
    fleet: options.FleetArgument,
    pool: options.PoolOption = None,
    allow: AllowOption = None,
    accept: AcceptOption = None,
    shrink: ShrinkOption = None,
    kubeconfig: KubeconfigOption = None,
    strict: options.StrictOption = False,
) -> None:
    """What `up` does to the machines, without Pulumi: read, plan, and bring pools into step wave by wave.

    A killed run is gone on with by the same command. Nodes that take jobs are touched only by what the pool's
    policy or --allow names; what was forbidden or busy is exit 4, what no stage mends exit 1.

    \b
    Example:
      lockstep bringup lab
      lockstep bringup lab --pool blackwell --allow reboot --allow install=gpu-003
    """
    from pathlib import Path

    from bringup import engine, joining, reading, results, words
    from inventory import load
    from lockstep.base import settings
    from lockstep.cli import acting
    from pinsets import checks

    config = settings.load()
    said = words.combined(os.environ, allow=allow, accept=accept, shrink=shrink)
    found = load.fleet(fleet, config, more=checks.CHECKS)
    config = config.of_fleet(found.name)
    cluster = joining.from_environment(config, os.environ, Path(kubeconfig) if kubeconfig else None)
    chosen = [one for one, _ in reading.select(found, pool, None)]
    # All refusals before anything is touched, not after the first pool is done.
    for one in chosen:
        engine.preflight(found, one, config, said)
    done: list[PoolResult] = []
    with acting.Show() as show:
        for one in chosen:
            done.append(engine.bring_into_step(found, one, config, said, show.event, joining=cluster))
    for result in done:
        acting.print_result(result)
    raise typer.Exit(results.exit_code(done, strict=strict))
