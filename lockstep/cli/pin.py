"""`lockstep pin`: pinsets and locks."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import rich.console
import rich.table
import typer
from rich.text import Text

from lockstep.base import errors, issues, settings
from lockstep.cli import options, pin_drafts

if TYPE_CHECKING:
    from pinsets.load import Catalogue, Resolved
    from pinsets.upgrades import Upgrade

__all__ = ["app"]

app = typer.Typer(help="Pinsets and locks.", rich_markup_mode=None)
pin_drafts.register(app)

PIPE_COLUMNS: Final = 400
"""Wider than any row."""

NameArgument = Annotated[str, typer.Argument(metavar="PINSET", help="A name in pinsets/catalog/.")]
FormatOption = Annotated[str, typer.Option("--format", help="table or json.", metavar="FORMAT")]


def _catalogue() -> Catalogue:
    from pinsets import load

    return load.default_catalogue(settings.load().checkout)


def _console() -> rich.console.Console:
    # Into a file or a pipe a table is as wide as it is: cut off it would lie.
    return rich.console.Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_COLUMNS)


@app.command("list")
def list_pinsets(output: FormatOption = "table") -> None:
    """Every pinset of the catalogue, with its SKUs and locks.

    \b
    Example:
      lockstep pin list
    """
    from pinsets import load

    options.one_of(output, "table", "json")
    catalogue = _catalogue()
    rows = []
    for name in catalogue.names:
        found = load.pinset(name, catalogue)
        oses = sorted(path.stem.rpartition("@")[2] for path in catalogue.locks.glob(f"{name}@*.json"))
        rows.append({"pinset": name, "sku": list(found.sku), "locks": oses, "supported": found.supported})
    if output == "json":
        print(json.dumps(rows, indent=2))
        return
    table = rich.table.Table(box=None, pad_edge=False)
    table.add_column("pinset", no_wrap=True)
    for title in ("SKU", "locked for", "supported"):
        table.add_column(title)
    for row in rows:
        cells = (str(row["pinset"]), ", ".join(row["sku"]), ", ".join(row["locks"]) or "–", str(row["supported"]))
        table.add_row(*(Text(cell) for cell in cells))
    _console().print(table)


@app.command()
def show(name: NameArgument, output: FormatOption = "table") -> None:
    """The pins of one pinset, what it inherits included.

    \b
    Example:
      lockstep pin show 2026-09-lab-gb200
    """
    from pinsets import load, wishes

    options.one_of(output, "table", "json")
    found = load.resolved(name, _catalogue())
    pins = wishes.pins(found.pinset)
    if output == "json":
        print(json.dumps({"pinset": name, "pins": [pin.model_dump(mode="json") for pin in pins]}, indent=2))
        return
    table = rich.table.Table(box=None, pad_edge=False)
    for title in ("component", "version", "layers", "scope", "enforce", "line"):
        table.add_column(title, no_wrap=True)
    for pin in pins:
        version = wishes.written(pin)
        layers = "+".join(layer.value for layer in pin.layers)
        component = f"{pin.component}[{pin.instance}]" if pin.instance else pin.component
        origin = found.origins[pin.component]
        line = f"{origin.path.rpartition('/')[2].removesuffix('.yaml')}:{origin.line}"
        cells = (component, version, layers, pin.scope.value, pin.enforce.value, line)
        table.add_row(*(Text(cell) for cell in cells))
    console = _console()
    console.print(f"pinset {' ← '.join(found.chain)}, for SKU {', '.join(found.pinset.sku)}", markup=False)
    for title, text in (("source", found.pinset.source), ("supported", found.pinset.supported)):
        if text:
            console.print(f"{title}: {text}", markup=False)
    console.print(table)
    _waived(console, found)


@app.command()
def query(
    name: NameArgument,
    component: Annotated[str, typer.Argument(metavar="COMPONENT", help="Such as driver or firmware.gpu.")],
    output: FormatOption = "table",
) -> None:
    """What one component is pinned to, and which file and line say so, through every `base:`.

    \b
    Example:
      lockstep pin query 2026-10-lab-gb200 driver
    """
    from lockstep.base import documents
    from pinsets import load, wishes

    options.one_of(output, "table", "json")
    found = load.resolved(name, _catalogue())
    pin = next((pin for pin in wishes.pins(found.pinset) if pin.component == component), None)
    if pin is None:
        known = sorted(found.pinset.pins)
        raise errors.InputError(
            f"pinset {name} does not pin `{component}`", hint=documents.did_you_mean(component, known)
        )
    written = found.pinset.pins[component]
    origin = found.origins[component]
    if output == "json":
        whole = {**pin.model_dump(mode="json"), "file": origin.path, "line": origin.line, "chain": list(found.chain)}
        print(json.dumps({**whole, "why": written.why, "source": written.source}, indent=2))
        return
    console = _console()
    console.print(f"{component} {wishes.written(pin)}", markup=False)
    inherited = f", inherited: {' ← '.join(found.chain)}" if not _own(found, component) else ""
    console.print(f"  from {origin}{inherited}", markup=False)
    console.print(f"  layers {', '.join(layer.value for layer in pin.layers)}; scope {pin.scope.value}", markup=False)
    if written.why:
        console.print(f"  why: {written.why}", markup=False)
    if written.source:
        console.print(f"  source: {written.source}", markup=False)


@app.command(no_args_is_help=False)
def lint(
    names: Annotated[list[str] | None, typer.Argument(metavar="[PINSET]…", help="None: the whole catalogue.")] = None,
) -> None:
    """Check pinsets: unknown components, ranges in place of versions, and versions that do not fit each other.

    A rule that a set breaks and waives is shown with the reason why the set is kept.

    \b
    Example:
      lockstep pin lint
    """
    from pinsets import load

    catalogue = _catalogue()
    report = issues.Report()
    chosen = names or list(catalogue.names)
    sound = [load.read_pinset(name, catalogue, report) for name in chosen]
    report.raise_if_errors("pinsets")
    console = _console()
    issues_found = report.ordered()
    for issue in issues_found:
        console.print(issue.text(), markup=False)
    for found in sound:
        _waived(console, found)
    warned = f"{len(issues_found)} warnings" if issues_found else "nothing wrong"
    console.print(f"{len(chosen)} pinsets: {warned}", markup=False)


def _waived(console: rich.console.Console, found: Resolved | None) -> None:
    from pinsets import lint_rules

    if found is None or not found.pinset.rules:
        return
    for rule in dict.fromkeys(breach.rule.id for breach, _ in lint_rules.by_rules(found.pinset).waived):
        console.print(f"{found.pinset.pinset} breaks {rule}, kept: {found.pinset.rules[rule]}", markup=False)


def _own(found: Resolved, component: str) -> bool:
    """Whether the pinset itself says it, not a base."""
    return Path(found.origins[component].path).stem == found.chain[0]


@app.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A name in pinsets/catalog/.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="A name in pinsets/catalog/.")],
    output: FormatOption = "table",
) -> None:
    """What changes between two pinsets and what each change needs. Exit 0 when nothing changes, 1 otherwise.

    One of: safe, needs-reboot, needs-power-cycle, one-way (cannot be taken back), blocked (does not fit, or is not
    ours to change).

    \b
    Example:
      lockstep pin diff 2026-09-lab-gb200 2026-10-lab-gb200
    """
    from inventory import load as fleets
    from pinsets import load, upgrades

    options.one_of(output, "table", "json")
    places = settings.load()
    catalogue = _catalogue()
    before, after = load.pinset(old, catalogue), load.pinset(new, catalogue)
    known = fleets.known_skus(places)
    upgrade = upgrades.between(before, after, [fleets.sku(name, places) for name in after.sku if name in known])
    changed = bool(upgrade.steps or upgrade.reasons)
    if output == "json":
        print(json.dumps(_as_json(upgrade, old, new), indent=2))
        raise typer.Exit(int(errors.ExitCode.DRIFT if changed else errors.ExitCode.IN_STEP))
    _show_upgrade(upgrade, old, new)
    if changed:
        raise typer.Exit(int(errors.ExitCode.DRIFT))


def _as_json(upgrade: Upgrade, old: str, new: str) -> dict[str, object]:
    steps = [dataclasses.asdict(step) for step in upgrade.steps]
    return {
        "old": old,
        "new": new,
        "need": upgrade.need,
        "steps": steps,
        "reasons": list(upgrade.reasons),
        "undecided": list(upgrade.undecided),
    }


def _show_upgrade(upgrade: Upgrade, old: str, new: str) -> None:
    console = _console()
    if not upgrade.steps:
        console.print("no pin differs", markup=False)
    table = rich.table.Table(box=None, pad_edge=False)
    for title in ("component", old, new, "needs"):
        table.add_column(title, no_wrap=True)
    for step in upgrade.steps:
        table.add_row(*(Text(cell) for cell in (step.component, step.old or "–", step.new or "–", step.need.value)))
    if upgrade.steps:
        console.print(table)
        console.print()
    # Below the table and not in it: a sentence in a column of a narrow terminal cannot be read.
    for step in upgrade.steps:
        console.print(f"{step.component}: {'; '.join(step.reasons)}", markup=False)
    for reason in upgrade.reasons:
        console.print(f"blocked: {reason}", markup=False)
    for text in upgrade.undecided:
        console.print(f"not decided by the pins alone: {text}", markup=False)
    if upgrade.steps or upgrade.reasons:
        console.print(f"as a whole: {upgrade.need.value}", markup=False)


@app.command()
def lock(
    fleet: options.FleetArgument,
    repository: Annotated[
        list[str] | None,
        typer.Option("--repository", help="Folder or URL to read in place of the fleet's; may be repeated."),
    ] = None,
    pinset: Annotated[
        list[str] | None, typer.Option("--pinset", help="Lock these, in place of those that the pools name.")
    ] = None,
    os_name: Annotated[
        str | None, typer.Option("--os", help="For --pinset: this OS, in place of those of fitting pools.")
    ] = None,
) -> None:
    """Resolve pinsets to exact package files, and write pinsets/locks/PINSET@OS.json.

    Reads the index of the fleet's repositories, its signature checked with the key that the fleet file names.

    \b
    Example:
      lockstep pin lock lab
      lockstep pin lock lab --pinset 2026-10-lab-gb200
    """
    from inventory import load as fleets
    from pinsets import lock_jobs

    places = settings.load()
    catalogue = _catalogue()
    found = fleets.fleet(fleet, places)
    targets = lock_jobs.targets(found, catalogue, pinset or (), os_name)
    sources = lock_jobs.sources(found, repository or ())
    console = _console()
    for made in lock_jobs.run(targets, sources, catalogue):
        word = "written" if made.written else "unchanged"
        console.print(
            f"{made.path.name}: {word}; {len(made.lock.packages)} packages, full {made.lock.full[:16]}, "
            f"job {made.lock.job[:16]}",
            markup=False,
        )
        _external(console, made.lock.external)
        for note in made.notes:
            console.print(f"  note: {note}", markup=False)


def _external(console: rich.console.Console, external: Sequence[str]) -> None:
    if external:
        console.print(f"  left to the OS image: {', '.join(external)}", markup=False)
