"""`lockstep place`: why these GPUs, and what would fit."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rich.console
import rich.table
import rich.text
import typer

from lockstep.base import errors, plaintext, replacing, settings
from lockstep.cli import options

if TYPE_CHECKING:
    from placement.explain import Explanation
    from placement.planner import Planner
    from placement.simulate.inflation import Run
    from placement.simulate.jobs import Report

__all__ = ["app"]

app = typer.Typer(help="Why these GPUs and no others, and what would fit: explain, simulate.")

RequestOption = Annotated[
    Path, typer.Option("--request", metavar="FILE", help="The request, as YAML or JSON (docs/placement.md).")
]
FleetOption = Annotated[
    str | None, typer.Argument(metavar="[FLEET]", help="A name in inventory/fleets/, or the path of a fleet file.")
]
DomainsOption = Annotated[
    int | None, typer.Option("--nvl72", metavar="DOMAINS", min=1, max=5000, help="A generated fleet of NVL72 domains.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Start value: the same one gives the same answer.")]


@app.command("explain")
def explain_command(
    request: RequestOption,
    fleet: FleetOption = None,
    nvl72: DomainsOption = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            "--audit", metavar="FILE", help="Verdicts of `lockstep audit --format json`; without: all in step."
        ),
    ] = None,
    situation: Annotated[
        Path | None,
        typer.Option(
            "--situation", metavar="FILE", help="Events, silent and hot nodes, running work (docs/placement.md)."
        ),
    ] = None,
    output: Annotated[str, typer.Option("--format", help="table or json.", metavar="FORMAT")] = "table",
    top: Annotated[int, typer.Option("--top", min=1, help="Candidates shown in the table; JSON has all.")] = 10,
    seed: SeedOption = 0,
) -> None:
    """Decide where a request would go and say, for every candidate and node, why. Reserves nothing.

    Without --audit, nodes of a fleet file count as in step unless they are spare, new, held or in repair; with it,
    nodes that the report does not name are out. CPU and memory are not checked (a fleet file does not declare
    them). Exit 4 when nothing fits now.

    \b
    Example:
      lockstep place explain lab --request train.yaml
      lockstep place explain lab --request train.yaml --audit audit.json --situation now.yaml
      lockstep place explain --nvl72 56 --request train.yaml --format json
    """
    from placement import explain, requests
    from placement.simulate import situations

    options.one_of(output, "table", "json")
    wanted = requests.parse(_read(request))
    planner = _planner(fleet, nvl72, seed, audit)
    if situation is not None:
        situations.apply(planner, situations.parse(_load(situation), str(situation)))
    # A tick after the work that runs already was placed: gates are asked anew.
    told = explain.explain(planner, wanted, 1.0)
    if output == "json":
        print(json.dumps(told.to_json(), indent=2))
    else:
        _print(told, top)
    if not told.decision.placed:
        raise typer.Exit(int(errors.ExitCode.REFUSED))


@app.command("simulate")
def simulate_command(
    fleet: FleetOption = None,
    nvl72: DomainsOption = None,
    jobs: Annotated[
        Path | None, typer.Option("--jobs", metavar="FILE", help="Jobs for the fleet: YAML or JSON list.")
    ] = None,
    traces: Annotated[Path | None, typer.Option("--traces", metavar="DIR", help="Folder of the openb traces.")] = None,
    trace: Annotated[
        str | None, typer.Option("--trace", help="Which pod list of --traces.  [default: default]")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="Of --traces: ours, fgd, best-fit …; may be repeated.")
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option("--hours", min=1, max=10_000, help="Simulated time of generated work.  [default: 48]"),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option("--load", min=0.01, max=10, help="GPU time asked for over what there is.  [default: 1.1]"),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Write a plot there (PNG, SVG).")] = None,
    seed: SeedOption = 42,
) -> None:
    """Replay work on a fleet, in virtual time: openb traces, generated NVL72 racks, or a fleet file with jobs.

    \b
    Example:
      lockstep place simulate --traces DIR --trace gpushare40 --policy ours --policy fgd --plot load.png
      lockstep place simulate --nvl72 40 --hours 96
      lockstep place simulate lab --jobs jobs.yaml
    """
    given = {"--jobs": jobs, "--trace": trace, "--policy": policy, "--hours": hours, "--load": load, "FLEET": fleet}
    if traces is not None:
        _useless({**given, "--nvl72": nvl72}, ("--trace", "--policy"), "--traces")
        _plottable(plot)
        _inflate(traces, trace or "default", policy or ["ours", "fgd"], seed, plot)
        return
    _useless(given, ("FLEET", "--jobs") if jobs is not None else ("FLEET", "--hours", "--load"), "what is replayed")
    _plottable(plot)
    from placement.simulate import jobs as jobs_module
    from placement.simulate import plots, shapes

    planner = _planner(fleet, nvl72, seed)
    nodes = len(planner.view.topology.names)
    if jobs is not None:
        work = _jobs(jobs)
    elif nvl72 is not None:
        work = shapes.mix(nodes, _number(load, 1.1, "--load"), _number(hours, 48.0, "--hours") * 3600, seed)
    else:
        raise errors.InputError("a fleet file needs work to replay", place="--jobs", hint="--jobs FILE")
    report = jobs_module.replay(planner, work)
    _print_report(report)
    if plot is not None:
        plots.occupancy({"this run": report}, plot)


def _useless(given: Mapping[str, object], used: Collection[str], beside: str) -> None:
    """An option that nothing reads is a misunderstanding. Raises `errors.InputError`."""
    for name, value in given.items():
        if value is not None and name not in used:
            raise errors.InputError(f"it has no meaning beside {beside}", place=name)


def _number(value: float | None, default: float, option: str) -> float:
    if value is not None and not math.isfinite(value):
        raise errors.InputError(f"a number, got {value}", place=option)
    return default if value is None else value


def _plottable(plot: Path | None) -> None:
    """Found out before an hour of simulation."""
    if plot is None:
        return
    if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise errors.InputError(
            f"{plot.name} is no plot", place="--plot", hint="a name that ends in .png, .svg or .pdf"
        )
    replacing.check(plot, "--plot")


def _inflate(folder: Path, name: str, policies: list[str], seed: int, plot: Path | None) -> None:
    from placement.simulate import openb, openb_runs, plots

    for policy in policies:
        options.one_of(policy, *openb_runs.POLICIES, option="--policy")
    built, trace = openb.load_fleet(folder), openb.load_trace(folder, name)
    runs: dict[str, Run] = {policy: openb_runs.run(built, trace, policy, seed)[0] for policy in policies}
    published = openb.published(folder)
    table = rich.table.Table("policy", "allocated at 90 %", "at 100 %", "at 130 %", "fragments at 90 %", "CPU s")
    for policy, run in runs.items():
        shown = [_percent(run.at(percent)) for percent in (90, 100, 130)]
        table.add_row(policy, *shown, _percent(run.fragment_at(90)), f"{run.seconds:.1f}")
    console = rich.console.Console(highlight=False)
    console.print(table)
    if name in published:
        console.print(
            f"published for FGD at 100 %: {published[name].mean:.2f}, deviation {published[name].deviation:.2f}"
        )
    if plot is not None:
        plots.inflation(runs, plot)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _planner(fleet: str | None, domains: int | None, seed: int, report: Path | None = None) -> Planner:
    from placement import audits, planner
    from placement.simulate import fleets, situations

    if (fleet is None) == (domains is None):
        raise errors.InputError("give a FLEET or --nvl72 DOMAINS, one of both", place="FLEET")
    verdicts = None if report is None else situations.of_report(_load(report), str(report))
    if domains is not None:
        made = fleets.nvl72(domains)
        audited = None if verdicts is None else audits.Audits(made, verdicts)
        return planner.Planner(fleets.quiet_view(made, audited), seed=seed)
    from inventory import load

    found = load.fleet(str(fleet), settings.load())
    built = fleets.from_inventory(found)
    serving = fleets.in_service(found)
    if verdicts is not None:
        serving = {name: verdicts[name] for name in serving if name in verdicts}
    known = audits.Audits(built, serving)
    return planner.Planner(fleets.quiet_view(built, known), seed=seed)


def _read(path: Path) -> dict[str, Any]:
    data = _load(path)
    if not isinstance(data, dict):
        raise errors.InputError("a request is a mapping", place=str(path))
    return data


def _load(path: Path) -> Any:
    from lockstep.base import documents, issues

    report = issues.Report()
    document = documents.load(path, report, shown=str(path))
    report.raise_if_errors(str(path))
    return None if document is None else document.data


def _jobs(path: Path) -> list[Any]:
    from placement import requests
    from placement.simulate import jobs as jobs_module

    listed = _load(path)
    if not isinstance(listed, list) or not listed:
        raise errors.InputError("jobs are a list of {request: …, arrives: SECONDS, runs: SECONDS}", place=str(path))
    found: dict[str, jobs_module.Job] = {}
    for index, item in enumerate(listed):
        place = f"{path}: [{index}]"
        if not isinstance(item, dict) or not isinstance(item.get("request"), dict):
            raise errors.InputError("a job needs `request`", place=place)
        times = {}
        for name in ("arrives", "runs"):
            value = item.get(name, 0)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                raise errors.InputError(f"`{name}` is a number of seconds, got {value!r}", place=place)
            times[name] = float(value)
        request = requests.parse({"name": f"job-{index}", **item["request"]})
        if request.name in found:
            raise errors.InputError(
                f"another job is named {request.name!r}", place=place, hint="a name of its own, or none"
            )
        found[request.name] = jobs_module.Job(request, times["arrives"], times["runs"])
    return list(found.values())


def _print(told: Explanation, top: int) -> None:
    console = rich.console.Console(highlight=False, markup=False, emoji=False)
    if told.placed:
        table = _table("rank", "node", "GPUs", title=f"{told.request}: placed")
        for rank, node, gpus in told.placed[: 4 * top]:
            _row(table, str(rank), node, ", ".join(map(str, gpus)))
        console.print(table)
        if len(told.placed) > 4 * top:
            console.print(f"… and {len(told.placed) - 4 * top} more ranks")
    else:
        console.print(plaintext.visible(f"{told.request}: refused"))
    table = _table("candidate", "verdict", "why", title=f"best {top} of {len(told.scopes)} candidates")
    for scope in told.scopes[:top]:
        _row(table, scope.candidate.name, scope.verdict, scope.reason)
    console.print(table)
    shut = [node for node in told.nodes if node.gate]
    if shut:
        table = _table("gate", "nodes", "for example", title=f"nodes refused: {len(shut)}")
        for gate, count in Counter(node.gate for node in shut).most_common():
            example = next(node for node in shut if node.gate == gate)
            _row(table, gate, str(count), f"{example.name}: {example.reason}")
        console.print(table)
    for alarm in told.alarms:
        console.print(plaintext.visible(f"alarm: {alarm}"))
    for warning in told.warnings:
        console.print(plaintext.visible(f"warning: {warning}"))
    if told.decision.preempt:
        names = ", ".join(told.decision.preempt)
        console.print(plaintext.visible(f"advice: these of lower priority would make room: {names}"))


def _table(*columns: str, title: str) -> rich.table.Table:
    return rich.table.Table(*columns, title=rich.text.Text(plaintext.visible(title)))


def _row(table: rich.table.Table, *cells: str) -> None:
    """Names are what people wrote into files: shown as they are, moving no terminal."""
    table.add_row(*(rich.text.Text(plaintext.visible(cell)) for cell in cells))


def _print_report(report: Report) -> None:
    waits = sorted(report.queue_seconds) or [0.0]
    table = rich.table.Table("measure", "value")
    table.add_row("occupancy", f"{report.occupancy:.2f} %")
    table.add_row(
        "started / finished / still waiting", f"{report.started} / {report.finished} / {report.never_started}"
    )
    table.add_row("median wait", f"{waits[len(waits) // 2]:.0f} s")
    table.add_row("split segments", str(report.split_segments))
    rich.console.Console(highlight=False).print(table)
