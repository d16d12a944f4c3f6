"""Options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["FleetArgument", "PoolOption", "StrictOption", "one_of"]

FleetArgument = Annotated[
    str, typer.Argument(metavar="FLEET", help="A name in inventory/fleets/, or the path of a fleet file.")
]
PoolOption = Annotated[list[str] | None, typer.Option("--pool", help="Only this pool; may be repeated.")]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="What could not be measured wins over drift: exit 3 before 1.")
]


def one_of(value: str, *known: str, option: str = "--format") -> None:
    """Refuse a word that an option does not know. Raises typer's usage error (exit 2)."""
    if value not in known:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}", param_hint=option)
