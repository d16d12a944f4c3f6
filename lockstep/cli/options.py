"""Options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "FailOnOption",
    "FleetArgument",
    "MaxUnreachableOption",
    "OutputOption",
    "PoolOption",
    "StrictOption",
    "one_of",
    "writable",
]

FleetArgument = Annotated[
    str, typer.Argument(metavar="FLEET", help="A name in inventory/fleets/, or the path of a fleet file.")
]
PoolOption = Annotated[list[str] | None, typer.Option("--pool", help="Only this pool; may be repeated.")]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="What could not be measured wins over drift: exit 3 before 1.")
]

FailOnOption = Annotated[
    str, typer.Option("--fail-on", metavar="block|warn|info", help="Least severity that makes exit code 1.")
]
MaxUnreachableOption = Annotated[
    str | None,
    typer.Option("--max-unreachable", metavar="N|N%", help="So many nodes may give no answer without exit code 3."),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Write it there, whole or not at all.")
]


def one_of(value: str, *known: str, option: str = "--format") -> None:
    """Refuse a word that an option does not know. Raises typer's usage error (exit 2)."""
    if value not in known:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}", param_hint=option)


def writable(output: Path | None, save: Path | None) -> None:
    """Files that can be written are found out before a thousand nodes are read. Raises `errors.InputError`."""
    from lockstep.base import replacing

    for option, path in (("--output", output), ("--save", save)):
        if path is not None:
            replacing.check(path, option)
