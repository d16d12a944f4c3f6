"""`lockstep probe`: the exact script that reads a node."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer()


@app.callback()
def _verb() -> None:
    """Show the exact script that reads a node."""


@app.command(name="print")
def print_(
    deep: Annotated[bool, typer.Option("--deep", help="With the heavy vendor tools, as `audit --deep` reads.")] = False,
) -> None:
    """Print the script that every node is given, for reading it before the first audit or running it by hand.

    Fed to `sh -s` it writes JSON Lines; files NODE.jsonl of such outputs in one folder are what
    `lockstep audit FLEET --facts FOLDER` takes.

    \b
    lockstep probe print | less
    lockstep probe print | ssh gpu-001 sh -s > outputs/gpu-001.jsonl
    """
    from bringup import probe
    from pinsets import components

    typer.echo(probe.script(components.load(), deep=deep), nl=False)
