"""Writes the generated references; with ``--check`` only says which differ (exit 1).

python docs/generate.py            # docs/{cli,fleet-file,rules,components}.md, docs/schemas/*.json
python docs/generate.py --check    # what `make check` runs
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import typer.main
from pydantic import BaseModel

from bringup import report as audit_report
from inventory import model as inventory_model
from lockstep.base import errors
from lockstep.cli import main
from pinsets import components, normalisers, rules
from pinsets import model as pinset_model
from pinsets.rules import engine
from pinsets.rules import files as rule_files
from pinsets.rules.conditions import Table
from pinsets.rules.groups import Recipes
from pinsets.rules.operands import Lookup

DOCS = Path(__file__).parent
SCHEMAS: dict[str, type[BaseModel]] = {
    "fleet": inventory_model.FleetFile,
    "sku": inventory_model.SkuFile,
    "components": pinset_model.ComponentsFile,
    "pinset": pinset_model.Pinset,
    "lock": pinset_model.Lock,
    "rules": rule_files.RuleFile,
}
NOTE = "<!-- Made by docs/generate.py; `make docs` writes it anew. -->"


def cli_page() -> str:
    """Help of every verb as the program prints it, and the table of exit codes."""
    root = typer.main.get_command(main.build(list(main.VERBS)))
    parts = [NOTE, "# Command line", "", _exit_codes(), ""]
    for path, command in _commands(root, "lockstep"):
        context = command.make_context(path, [], resilient_parsing=True)
        context.terminal_width = context.max_content_width = 100
        context.info_name = path
        context.parent = None
        text = re.sub(r"[ \t]+$", "", command.get_help(context), flags=re.MULTILINE)
        parts += [f"## `{path}`", "", "```text", text.strip(), "```", ""]
    return "\n".join(parts)


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in sorted(getattr(command, "commands", {}).items()):
        if child.hidden:
            # A verb's own command: its help is the verb's.
            continue
        yield from _commands(child, f"{path} {name}")


def _exit_codes() -> str:
    rows = ["| exit code | meaning |", "| --- | --- |"]
    for code, text in zip(errors.ExitCode, _field_texts(errors.ExitCode), strict=True):
        rows.append(f"| {int(code)} | {text} |")
    rows += ["", "When several apply: 130 > 5 > 2 > 4 > 1 > 3; with `--strict` 3 before 1."]
    return "\n".join(rows)


def _field_texts(kind: type) -> list[str]:
    """The strings under an enum's members, in order."""
    import ast
    import inspect
    import textwrap

    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    if not isinstance(tree, ast.ClassDef):
        raise TypeError(f"{kind} is not a class")
    texts = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return texts[1:]


def fleet_page() -> str:
    """Every key of a fleet file and of a SKU file, with type, default and meaning."""
    parts = [NOTE, "# Fleet and SKU files", "", (DOCS / "fleet-file.intro.md").read_text().strip(), ""]
    for title, kind in (
        ("Fleet file", inventory_model.FleetFile),
        ("`ssh`", inventory_model.Ssh),
        ("`repositories[]`", inventory_model.Repository),
        ("`pools[]`", inventory_model.PoolEntry),
        ("`pools[].disruption`", inventory_model.Disruption),
        ("`pools[].nodes`", inventory_model.NodesEntry),
        ("`bmc`", inventory_model.Bmc),
        ("SKU file", inventory_model.SkuFile),
    ):
        parts += [f"## {title}", "", *_rows(kind), ""]
    return "\n".join(parts)


def _rows(kind: type[BaseModel]) -> Iterator[str]:
    yield "| key | default | meaning |"
    yield "| --- | --- | --- |"
    for name, spec in kind.model_fields.items():
        default = "required" if spec.is_required() else f"`{_shown(spec.default)}`"
        yield f"| `{spec.alias or name}` | {default} | {spec.description or ''} |"


def _shown(value: object) -> str:
    if isinstance(value, BaseModel):
        return "see below"
    if isinstance(value, (tuple, frozenset, list)):
        return "[" + ", ".join(str(item) for item in value) + "]"
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


_FAMILIES = {
    "driver.yaml": "Driver and kernel",
    "cuda.yaml": "CUDA, cuDNN, DCGM",
    "fabric.yaml": "NVLink fabric",
    "nccl.yaml": "NCCL and its plugins",
    "rdma.yaml": "RDMA and NICs",
    "containers.yaml": "Containers and operators",
    "amd.yaml": "AMD",
}


def rules_page() -> str:
    """Every rule of what fits what: an overview, then each with its condition, tables, source and remedy."""
    by_file: dict[str, list[rules.Rule]] = {}
    for rule in rules.load():
        by_file.setdefault(rule.path.rpartition("/")[2], []).append(rule)
    parts = [NOTE, "# Rules", "", (DOCS / "rules.intro.md").read_text().strip(), ""]
    order = [*_FAMILIES, *(name for name in by_file if name not in _FAMILIES)]
    for name in order:
        parts += [
            f"## {_FAMILIES.get(name, name)}",
            "",
            "| rule | what | severity | about |",
            "| --- | --- | --- | --- |",
        ]
        for rule in by_file[name]:
            use = f" for {rule.use}" if rule.use else ""
            doubtful = " (?)" if rule.doubtful else ""
            levels = ", ".join(rule.levels)
            parts.append(
                f"| [{rule.id}](#{rule.id.lower()}) | {rule.title}{doubtful} | {rule.severity}{use} | {levels} |"
            )
        parts.append("")
        for rule in by_file[name]:
            parts += _rule(rule)
    return "\n".join(parts)


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _rule(rule: rules.Rule) -> Iterator[str]:
    yield from (f"### {rule.id}", "", rule.title, "")
    if rule.vendor is not None:
        yield f"- about accelerators of {'NVIDIA' if rule.vendor == 'nvidia' else 'AMD'}"
    if rule.applies is not None:
        yield f"- applies where {rule.applies}"
    demanded = rule.demand or rule.group or rule.step
    yield f"- demands {demanded}{f', for each {rule.each}' if rule.each else ''}"
    yield f"- broken: {rule.message}"
    yield f"- remedy: {rule.remedy}"
    yield f"- source: {rule.source}{'; doubtful, so it only warns' if rule.doubtful else ''}"
    if rule.reports:
        yield f"- reports: {', '.join(rule.reports)}"
    yield ""
    known: set[str] = set()
    for part in engine.parts((rule.applies, rule.demand, rule.group)):
        if isinstance(part, Table):
            yield from (_row(" and ".join(str(key) for key in part.keys), part.look), "| --- | --- |")
            for line in part.lines:
                cells = (cell if isinstance(cell, str) else " or ".join(one.text for one in cell) for cell in line.when)
                then = " or ".join(one.text for one in line.then)
                yield _row(", ".join(cells), f"{then}{' (?)' if line.doubtful else ''}")
            yield ""
        elif isinstance(part, Lookup) and part.name not in known:
            known.add(part.name)
            yield from (_row(part.of, part.name), "| --- | --- |")
            for row in part.rows:
                yield _row(" or ".join(one.text for one in row.when), f"{row.gives}{' (?)' if row.doubtful else ''}")
            yield ""
        elif isinstance(part, Recipes):
            yield from ("| recipe | component | versions |", "| --- | --- | --- |")
            for recipe in part.of:
                for component, values in recipe.values.items():
                    yield _row(recipe.name, component, " or ".join(sorted(values)))
            yield ""


def components_page() -> str:
    """Every component: layers, instances, what is equal, who changes it, what it is read from."""
    parts = [NOTE, "# Components", "", (DOCS / "components.intro.md").read_text().strip(), ""]
    heads = ("component", "layers", "further layers", "one per", "compared as", "runs after", "owner", "read by")
    parts += [_row(*heads, "where", "why"), f"|{' --- |' * (len(heads) + 2)}"]
    for name, entry in components.load().items():
        doubtful = " (?)" if entry.normaliser in normalisers.DOUBTFUL else ""
        instance = f"{entry.instance}{', all alike' if entry.alike else ''}" if entry.instance else "node"
        cells = (
            f"`{name}`",
            ", ".join(entry.layers),
            ", ".join(entry.further) or "–",
            instance,
            f"{entry.normaliser}{doubtful}",
            entry.activation.value,
            entry.owner,
            ", ".join(entry.readers) or "nobody",
            "; ".join(entry.sources),
            entry.why,
        )
        parts.append(_row(*cells))
    parts += ["", "## How versions are compared", "", "| name | what it does |", "| --- | --- |"]
    for name, function in normalisers.NORMALISERS.items():
        first = " ".join((function.__doc__ or "").strip().split("\n\n")[0].split())
        doubtful = f" Doubtful: {normalisers.DOUBTFUL[name]}." if name in normalisers.DOUBTFUL else ""
        parts.append(_row(name, f"{first.replace('``', '`')}{doubtful}"))
    return "\n".join([*parts, ""])


def schemas() -> dict[str, str]:
    """File name → JSON schema."""
    texts = {}
    for name, kind in SCHEMAS.items():
        schema = pydantic.TypeAdapter(kind).json_schema()
        texts[f"schemas/{name}.schema.json"] = json.dumps(schema, indent=2, sort_keys=True) + "\n"
    written = audit_report.AuditReport.model_json_schema(mode="serialization")
    texts["schemas/audit.schema.json"] = json.dumps(written, indent=2, sort_keys=True) + "\n"
    return texts


def pages() -> dict[str, str]:
    """Path below docs/ → text of everything generated."""
    return {
        "cli.md": cli_page(),
        "fleet-file.md": fleet_page(),
        "rules.md": rules_page(),
        "components.md": components_page(),
        **schemas(),
    }


def run(arguments: list[str]) -> int:
    """Writes or checks; returns the exit code."""
    check = arguments == ["--check"]
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if path.is_file() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    if check and stale:
        print("\n".join(f"docs/{name} differs from the code; run `make docs`" for name in stale), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
