"""`lockstep replace`: a failed node leaves, a new machine takes its slot and rejoins on equality."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from lockstep.cli import options
from lockstep.cli.bringup import AllowOption, KubeconfigOption


def command(
    fleet: options.FleetArgument,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")],
    allow: AllowOption = None,
    print_patch: Annotated[
        bool, typer.Option("--print-patch", help="Print the change of the fleet file instead of writing it.")
    ] = False,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Replace a failed node: fenced, powered off and proved off, re-imaged, brought up, and let in only when its
    versions equal the slot's lock and what its predecessor had.

    Acts on a node that is fenced, NotReady, powered off or `state: repair`; any other needs --allow reimage=NODE.
    Stopped half way, the same command goes on. The fleet file's generation is raised; comments stay.

    \b
    Example:
      lockstep replace lab gpu-003 --allow reimage
      lockstep replace prod gpu-017 --allow reimage=gpu-017 --print-patch
    """
    from pathlib import Path

    from bringup import joining, replace, words
    from inventory import load
    from lockstep.base import settings
    from lockstep.cli import acting
    from pinsets import checks

    config = settings.load()
    said = words.combined(os.environ, allow=allow)
    found = load.fleet(fleet, config, more=checks.CHECKS)
    config = config.of_fleet(found.name)
    cluster = joining.from_environment(config, os.environ, Path(kubeconfig) if kubeconfig else None)
    with acting.Show() as show:
        done = replace.replace(found, node, config, said, show.event, joining=cluster, write=not print_patch)
    acting.print_replaced(done)
