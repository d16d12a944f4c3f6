"""`lockstep import`: a fleet file from what somebody has already."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lockstep.base import documents, errors, issues

__all__ = ["app"]

app = typer.Typer(help="Make a fleet file from what exists already.", rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Keeps `ansible` a word of its own while it is the only one."""


@app.command()
def ansible(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An inventory, INI or YAML; nothing is run.")],
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Only this group becomes a pool; may be repeated.")
    ] = None,
    fleet: Annotated[str, typer.Option("--fleet", help="Name of the fleet.")] = "imported",
    sku: Annotated[str, typer.Option("--sku", help="SKU of the pools.")] = "FILL-IN",
    os_name: Annotated[str, typer.Option("--os", help="Operating system of the pools.")] = "FILL-IN",
    pinset: Annotated[str, typer.Option("--pinset", help="Pinset of the pools.")] = "FILL-IN",
) -> None:
    """Print a fleet file made from an Ansible inventory: groups become pools, host ranges stay ranges.

    The file goes to standard output; what could not be taken over goes to standard error, with the reason.

    \b
    Example:
      lockstep import ansible hosts.ini --group gpu --fleet prod --sku gb200-nvl72 > inventory/fleets/prod.yaml
    """
    from inventory import ansible as inventories
    from inventory import importing

    report = issues.Report()
    place = documents.place(file)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise errors.InputError(f"cannot be read: {reason}", place=place) from error
    for folder in ("group_vars", "host_vars"):
        if (file.parent / folder).is_dir():
            report.warning(place, None, f"{folder}/ beside the inventory is not read", "add what it says by hand")
    found = inventories.read(text, place, report)
    wishes = importing.Wishes(fleet, tuple(group or ()), sku, os_name, pinset)
    made = importing.fleet_text(found, place, wishes, report) if found is not None else None
    report.raise_if_errors(f"inventory {place}")
    for issue in report.ordered():
        print(issue.text(), file=sys.stderr)
    print(made, end="")
