"""`lockstep tools`: build and find the engine programs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import rich.console
import rich.live
import rich.text
import typer

from lockstep.base import programs

__all__ = ["app"]

app = typer.Typer(help="The programs of tools/: what `lab`, `up` and plain `pulumi` run.", rich_markup_mode=None)

LINE_SECONDS = 15.0
"""Between two lines of a build that nobody watches (a CI log)."""


@app.command(no_args_is_help=False)
def build(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="Programs or folders of tools/; none: all.")
    ] = None,
    link: Annotated[
        Path | None, typer.Option("--link", help="Also link pulumi, its language host and kubectl into this folder.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing when there is nothing to build.")] = False,
) -> None:
    """Build what is missing, one after the other, first what is needed first.

    What is built lies in the cache under a digest of module files, flags and Go version, and serves every checkout.

    \b
    Example:
      lockstep tools build              # everything
      lockstep tools build etcd kwok    # these
    """
    console = rich.console.Console(highlight=False)
    chosen = names or []
    absent = programs.missing(chosen)
    if absent:
        minutes = max(1, round(programs.estimate_seconds(absent) / 60))
        console.print(
            f"{len(absent)} to build: {', '.join(absent)}. About {minutes} min on 2 cores when nothing is cached.",
            soft_wrap=True,
        )
    with _Display(console, silent=quiet and not absent) as display:
        programs.build(chosen, display.show)
    if link is not None:
        programs.link(link)


@app.command()
def status(
    form: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> None:
    """List the programs: official, built or missing, and where they lie. Builds nothing.

    \b
    Example:
      lockstep tools status --format json
    """
    rows = programs.status()
    if form == "json":
        print(json.dumps([_plain(row) for row in rows], indent=2))
        return
    if form != "table":
        raise typer.BadParameter(f"{form} is not table or json", param_hint="--format")
    lines = [("PROGRAM", "STATE", "NOTE", "WHERE")]
    for row in rows:
        where = str(row.path) if row.path else f"lockstep tools build {row.module}"
        lines.append((row.name, str(row.state), row.note or "–", where))
    name, state, note, _ = (max(len(line[column]) for line in lines) for column in range(4))
    for line in lines:
        # Paths are for copying: never folded to the width of a terminal.
        print(f"{line[0]:{name}}  {line[1]:{state}}  {line[2]:{note}}  {line[3]}")


def _plain(row: programs.Program) -> dict[str, str | None]:
    path = str(row.path) if row.path else None
    return {"program": row.name, "module": row.module, "state": str(row.state), "path": path, "note": row.note}


class _Display:
    """One moving line on a terminal; elsewhere a line at each new stage and now and then in between."""

    def __init__(self, console: rich.console.Console, *, silent: bool) -> None:
        self._console = console
        self._silent = silent
        self._live: rich.live.Live | None = None
        self._last = ("", programs.Stage.PREPARING)
        self._printed = 0.0

    def __enter__(self) -> _Display:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        sys.stdout.flush()

    def show(self, now: programs.Progress) -> None:
        """A step of the build."""
        ended = now.stage in (programs.Stage.BUILT, programs.Stage.FOUND, programs.Stage.OFFICIAL)
        if self._silent:
            return
        if ended:
            self._stop()
            self._console.print(rich.text.Text(_line(now)), soft_wrap=True)
        elif self._console.is_terminal:
            if self._live is None:
                self._live = rich.live.Live(console=self._console, transient=True, refresh_per_second=4)
                self._live.start()
            self._live.update(rich.text.Text(_line(now), overflow="ellipsis", no_wrap=True))
        elif (now.module, now.stage) != self._last or time.monotonic() - self._printed > LINE_SECONDS:
            self._console.print(rich.text.Text(_line(now)), soft_wrap=True)
            self._printed = time.monotonic()
        self._last = (now.module, now.stage)

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _line(now: programs.Progress) -> str:
    """For example ``[3/6] kubernetes  4:12  compiling 812 of at most 1,480 packages: k8s.io/api/core/v1``."""
    head = f"[{now.number}/{now.of}] {now.module}"
    clock = f"{int(now.seconds) // 60}:{int(now.seconds) % 60:02d}"
    if now.stage is programs.Stage.COMPILING and not now.packages:
        return f"{head}  {clock}  taking what is compiled already of {now.of_packages:,} packages, then linking"
    if now.stage is programs.Stage.COMPILING:
        return f"{head}  {clock}  compiling {now.packages:,} of at most {now.of_packages:,} packages: {now.text}"
    if now.stage is programs.Stage.LINKING:
        return f"{head}  {clock}  linking after {now.packages:,} packages"
    if now.stage is programs.Stage.BUILT:
        return f"{head}  built in {clock}: {now.text}" if now.seconds else f"{head}  installed: {now.text}"
    if now.stage is programs.Stage.FOUND:
        return f"{head}  is built: {now.text}"
    if now.stage is programs.Stage.OFFICIAL:
        return f"{head}  official, used as it is: {now.text}"
    return f"{head}  {clock}  {now.text or now.stage}"
