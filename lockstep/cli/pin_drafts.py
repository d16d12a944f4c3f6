"""`lockstep pin import`, `from-node` and `export`: pinsets from other lists and nodes, and in other tools' words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.base import errors, replacing, settings
from lockstep.cli import options, progress

if TYPE_CHECKING:
    from lockstep.base.names import NodeName
    from lockstep.base.settings import Settings
    from pinsets.drafts import Draft
    from pinsets.facts import NodeFacts, Snapshot
    from pinsets.load import Catalogue
    from pinsets.model import Lock

__all__ = ["register"]

NameOption = Annotated[str, typer.Option("--name", metavar="PINSET", help="Name of the new pinset.")]
WriteOption = Annotated[
    bool, typer.Option("--write", help="Write pinsets/catalog/PINSET.yaml; else the text goes to standard output.")
]
WaiveOption = Annotated[
    list[str] | None,
    typer.Option("--waive", metavar="RULE=REASON", help="Keep the set although it breaks this rule; repeatable."),
]


def register(app: typer.Typer) -> None:
    """Add these commands to `lockstep pin`."""
    app.command("import")(import_)
    app.command("from-node")(from_node)
    app.command("export")(export)


def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Published lists; the first one wins.")],
    name: NameOption,
    sku: Annotated[list[str], typer.Option("--sku", help="SKU that it is for; may be repeated.")],
    form: Annotated[
        str | None, typer.Option("--form", metavar="azhpc|aicr|redistrib", help="None: told from the contents.")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            help="AzHPC: a word of the path, outermost first; repeatable. redistrib: the platform (linux-x86_64).",
        ),
    ] = None,
    waive: WaiveOption = None,
    write: WriteOption = False,
) -> None:
    """A pinset from AzHPC's versions.json, an AICR recipe, or NVIDIA's redistrib files.

    Ranges and what no component stands for are left out and listed at the head of the file. Nothing is written
    when the result does not pass lint, the rules of what fits what included.

    \b
    lockstep pin import versions.json --name azhpc-gb200 --sku gb200-nvl72 --select ubuntu24.04 --select aarch64 \\
        --select baremetal_3p --select nvidia_gb200
    lockstep pin import recipes/overlays/gb200-eks-training.yaml --name aicr-gb200 --sku gb200-nvl72
    lockstep pin import redistrib_13.0.2.json redistrib_9.18.1.json --name toolkit --sku dgx-h100
    """
    from pinsets import importing

    if form is not None:
        options.one_of(form, *importing.FORMS, option="--form")
    draft = importing.draft(files, form, select or ())
    if not draft.pins:
        left = "; ".join(map(str, draft.left_out)) or "it holds none"
        raise errors.InputError(f"no version in it can be pinned: {left}")
    _put(draft, name, sku, waive, write)


def from_node(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The golden node; a host name without --fleet.")],
    name: NameOption,
    fleet: Annotated[str | None, typer.Option("--fleet", help="Fleet that the node stands in.")] = None,
    sku: Annotated[
        list[str] | None, typer.Option("--sku", help="SKU that it is for; with --fleet: its pool's.")
    ] = None,
    facts: Annotated[
        str | None,
        typer.Option(
            "--facts",
            metavar="snapshot|PATH",
            help="A stored reading in place of reading now: a snapshot, or a folder of probe outputs NODE.jsonl.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="Leave this component out; may be repeated.")
    ] = None,
    waive: WaiveOption = None,
    write: WriteOption = False,
) -> None:
    """A pinset from a node that is as it should be.

    Refused when the node disagrees with itself: layers of one component, or GPUs, that hold several values.

    \b
    lockstep pin from-node gpu-001 --fleet lab --name 2026-11-golden
    lockstep pin from-node gpu-001 --sku dgx-h100 --facts reading.jsonl.gz --name 2026-11-golden --write
    lockstep pin from-node gpu-001 --sku dgx-h100 --facts outputs --name 2026-11-golden
    """
    from lockstep.base import documents
    from pinsets import components, golden

    for component in without or ():
        if component not in components.load():
            hint = documents.did_you_mean(component, sorted(components.load()))
            raise errors.InputError(f"unknown component `{component}`", place="--without", hint=hint)
    seen, own = _read(node, fleet, facts, sku or ())
    skus = sku or own
    if not skus:
        raise typer.BadParameter("say the machine type", param_hint="--sku")
    if seen.unreachable is not None:
        raise errors.NotMeasuredError(f"{node} did not answer: {seen.unreachable}")
    draft, disagreements = golden.draft(seen, without or ())
    if disagreements:
        listed = "\n  ".join(map(str, disagreements))
        raise errors.InputError(
            f"{node} disagrees with itself, so it is no example:\n  {listed}",
            hint="mend it first, or leave a component out: --without COMPONENT",
        )
    if not draft.pins:
        raise errors.NotMeasuredError(f"no version could be read on {node}")
    _put(draft, name, skus, waive, write)


def _read(node: str, fleet: str | None, facts: str | None, wanted: Sequence[str]) -> tuple[NodeFacts, list[str]]:
    """(facts of the node, SKU of its pool)."""
    from lockstep.base import names

    given = settings.load()
    if fleet is None:
        return _facts_of(_read_host(node, facts, wanted), names.NodeName(node), facts), []
    from bringup import reading, stored
    from inventory import load as fleets
    from pinsets import components

    found = fleets.fleet(fleet, given)
    member = found.node(node)
    if member is None:
        raise errors.InputError(f"fleet {found.name} has no node {node}")
    given = given.of_fleet(found.name)
    if facts is not None:
        skus = {one.name: pool.sku for pool in found.pools for one in pool.nodes}
        snapshot, _ = stored.load(facts, given, found.name, components.load(), skus)
    else:
        with progress.Bar("reading") as bar:
            snapshot = reading.read_nodes(found, [node], progress=bar.advance)
    return _facts_of(snapshot, names.NodeName(node), facts), [found.pool_of(member).sku.sku]


def _read_host(node: str, facts: str | None, skus: Sequence[str]) -> Snapshot:
    """The reading that holds the node; slots of devices are named by the first of ``skus``."""
    from inventory import load as fleets

    sku = fleets.sku(skus[0]) if skus else None
    if facts is not None:
        from bringup import folders
        from lockstep.base import names
        from pinsets import components, snapshots

        if facts == "snapshot":
            raise typer.BadParameter("a stored snapshot belongs to a fleet: give --fleet", param_hint="--facts")
        path = Path(facts)
        if path.is_dir():
            return folders.read(path, components.load(), {names.NodeName(node): sku} if sku is not None else None)
        return snapshots.read(path)
    from bringup import baselines, reading

    with progress.Bar("reading") as bar:
        return reading.read_hosts([node], baseline=baselines.Baseline(sku=sku), progress=bar.advance).snapshot


def _facts_of(snapshot: Snapshot, node: NodeName, facts: str | None) -> NodeFacts:
    from lockstep.base import documents

    if node not in snapshot.nodes:
        hint = documents.did_you_mean(node, sorted(snapshot.nodes))
        raise errors.InputError(f"the reading has no node {node}", place=facts, hint=hint)
    return snapshot.nodes[node]


def export(
    form: Annotated[str, typer.Argument(metavar="FORM", help="apt, dnf, ansible, gpu-operator or container.")],
    pinset: Annotated[str, typer.Argument(metavar="PINSET", help="A name in pinsets/catalog/.")],
    os_name: Annotated[
        str | None, typer.Option("--os", help="Take the lock for this OS; None: the only one there is.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Write this file; else standard output.")] = None,
) -> None:
    """A pinset in another tool's words: apt preferences, dnf's versionlock, variables, chart values, build arguments.

    apt and dnf get exact packages and so need the lock; the others take it where there is one.

    \b
    lockstep pin export apt 2026-09-lab-gb200 --output /etc/apt/preferences.d/lockstep
    lockstep pin export gpu-operator gpu-operator-26.7.0 | helm upgrade --values - …
    """
    from pinsets import exporting, load

    options.one_of(form, *exporting.FORMS, option="FORM")
    catalogue = load.default_catalogue(settings.load().checkout)
    found = load.pinset(pinset, catalogue)
    lock = _lock(form, pinset, os_name, catalogue)
    try:
        text = exporting.render(form, found, lock)
    except ValueError as error:
        raise errors.InputError(f"pinset {pinset}: {error}") from error
    if output is None:
        typer.echo(text, nl=False)
        return
    replacing.write(output, text)
    typer.echo(f"{output}: written", err=True)


def _lock(form: str, pinset: str, os_name: str | None, catalogue: Catalogue) -> Lock | None:
    from pinsets import exporting, load

    if os_name is not None:
        return load.lock(pinset, os_name, catalogue)
    there = sorted(path.stem.partition("@")[2] for path in catalogue.locks.glob(f"{pinset}@*.json"))
    if len(there) == 1:
        return load.lock(pinset, there[0], catalogue)
    if form in exporting.NEEDS_LOCK:
        if there:
            raise errors.InputError(f"pinset {pinset} is locked for {', '.join(there)}", hint="say which: --os NAME")
        hint = f"lockstep pin lock FLEET --pinset {pinset}"
        raise errors.InputError(f"{form} needs exact packages, and pinset {pinset} has no lock", hint=hint)
    return None


def _put(draft: Draft, name: str, skus: list[str], waive: list[str] | None, write: bool) -> None:
    """Lint the draft as the file it would be, then print or write it; a mistake in it is an error, nothing written."""
    from lockstep.base import documents, issues
    from pinsets import drafts, lint, lint_rules, load
    from pinsets.model import Pinset

    given = settings.load()
    _named(name, skus, given)
    text = drafts.text(draft, name, skus, rules=_waived(waive))
    report = issues.Report()
    document = documents.parse(text, f"{name}.yaml", report)
    model = document.model(Pinset, report) if document is not None else None
    if document is not None and model is not None:
        lint.run(model, document, report)
        if not report.errors:
            origins = {one: load.Origin(f"{name}.yaml", document.line("pins", one)) for one in model.pins}
            lint_rules.report_on(load.Resolved(model, origins, (name,)), report)
    report.raise_if_errors(f"the pinset made from {draft.source}")
    for issue in report.ordered():
        typer.echo(issue.text(), err=True)
    if not write:
        typer.echo(text, nl=False)
        return
    path = load.default_catalogue(given.checkout).pinsets / f"{name}.yaml"
    if path.exists():
        raise errors.InputError(
            f"pinset {name} is there already",
            place=documents.place(path),
            hint="a set that was used is never edited: choose another name",
        )
    replacing.write(path, text)
    typer.echo(f"{documents.place(path)}: written; {len(draft.pins)} pins, {len(draft.left_out)} left out", err=True)


def _waived(waive: list[str] | None) -> dict[str, str]:
    found = {}
    for text in waive or ():
        rule, equals, reason = text.partition("=")
        if not equals:
            raise typer.BadParameter("write RULE=REASON", param_hint="--waive")
        found[rule.strip()] = reason.strip()
    return found


def _named(name: str, skus: list[str], given: Settings) -> None:
    from inventory import load as fleets
    from lockstep.base import documents

    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise errors.InputError(f"{name!r} is no name of a pinset", hint="lower-case letters, digits, dots and hyphens")
    known = sorted(fleets.known_skus(given))
    for sku in skus:
        if sku not in known:
            raise errors.InputError(f"there is no SKU `{sku}`", place="--sku", hint=documents.did_you_mean(sku, known))
