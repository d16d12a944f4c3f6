"""The files of `pinsets/rules` → rules, everything wrong in them reported at once."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from lockstep.base import documents, issues
from lockstep.base.names import InstanceKind
from pinsets.findings import Severity
from pinsets.rules import forms
from pinsets.rules.model import Level, Rule

__all__ = ["RuleEntry", "RuleFile", "TableFile", "load", "read"]

_HERE = Path(__file__).parent
_TABLES = "tables.yaml"
_ID = re.compile(r"[A-Z]+\d*(-[a-z0-9]+)*")


class RuleEntry(documents.Model):
    """One rule as written; its conditions are read by `pinsets.rules.forms`."""

    id: Annotated[str, Field(description="Letters and number of the catalogue, then words: `F1`, `F1-present`.")]
    title: Annotated[str, Field(description="The rule as a sentence.")]
    levels: Annotated[tuple[Level, ...], Field(description="What it is about.")] = ("node", "set")
    severity: Severity
    use: Annotated[str | None, Field(description="Limits it to a use.")] = None
    doubtful: Annotated[bool, Field(description="The source is not certain: then it only warns.")] = False
    vendor: Annotated[
        Literal["nvidia", "amd", "any"] | None, Field(description="Whose accelerators; None: as the file says.")
    ] = None
    each: Annotated[InstanceKind | None, Field(description="Judged for each such instance.")] = None
    source: Annotated[str, Field(description="Who says so.")]
    reports: Annotated[tuple[str, ...], Field(description="Public reports of what follows.")] = ()
    message: Annotated[str, Field(description="What is wrong, and what follows from it.")]
    remedy: Annotated[str, Field(description="What to do.")]
    applies: Annotated[dict[str, Any] | None, Field(description="Condition: on which nodes it is judged.")] = None
    demand: Annotated[dict[str, Any] | None, Field(description="Condition of a node or set.")] = None
    group: Annotated[dict[str, Any] | None, Field(description="Condition of a group of nodes.")] = None
    no_return: Annotated[
        dict[str, Any] | None, Field(alias="no-return", description="A step that cannot be taken.")
    ] = None


class RuleFile(documents.Model):
    """A file of rules about one family of components."""

    vendor: Annotated[Literal["nvidia", "amd", "any"], Field(description="Whose accelerators its rules are about.")] = (
        "any"
    )
    rules: tuple[RuleEntry, ...]


class TableFile(documents.Model):
    """``tables.yaml``: what operands look up."""

    tables: dict[str, Any]


@functools.cache
def load() -> tuple[Rule, ...]:
    """The rules that ship with us, in the order of files and entries. Raises `errors.InputError` for damaged ones."""
    report = issues.Report()
    found = read(sorted(_HERE.glob("*.yaml")), report)
    report.raise_if_errors("the rules")
    return found


def read(paths: Sequence[Path], report: issues.Report) -> tuple[Rule, ...]:
    """The rules of these files; one of them may be ``tables.yaml``. What is wrong goes to ``report``."""
    tables = _tables([path for path in paths if path.name == _TABLES], report)
    found: list[Rule] = []
    for path in paths:
        if path.name == _TABLES:
            continue
        document = documents.load(path, report, shown=f"pinsets/rules/{path.name}")
        file = document.model(RuleFile, report) if document else None
        if document is None or file is None:
            continue
        for index, entry in enumerate(file.rules):
            rule = _rule(entry, document, ("rules", index), (tables, entry.vendor or file.vendor), report)
            if rule is None:
                continue
            if any(one.id == rule.id for one in found):
                report.error(document.path, rule.line, f"rule `{rule.id}` stands twice")
            found.append(rule)
    return tuple(found)


def _tables(paths: Sequence[Path], report: issues.Report) -> forms.Tables:
    found: dict[str, Any] = {}
    for path in paths:
        document = documents.load(path, report, shown=f"pinsets/rules/{path.name}")
        file = document.model(TableFile, report) if document else None
        if document is None or file is None:
            continue
        for name, data in file.tables.items():
            try:
                found[name] = forms.lookup_rows(data, ("tables", name))
            except forms.FormError as error:
                report.error(document.path, document.line(*error.loc), str(error), error.hint)
    return found


def _rule(
    entry: RuleEntry,
    document: documents.Document,
    loc: tuple[str | int, ...],
    known: tuple[forms.Tables, str],
    report: issues.Report,
) -> Rule | None:
    line = document.line(*loc, "id")
    tables, vendor = known
    if wrong := _shape(entry):
        report.error(document.path, line, f"rule `{entry.id}`: {wrong}")
        return None
    try:
        return Rule(
            id=entry.id,
            title=entry.title,
            levels=entry.levels,
            severity=entry.severity,
            source=entry.source,
            remedy=entry.remedy,
            message=entry.message,
            path=document.path,
            line=line,
            use=entry.use,
            doubtful=entry.doubtful,
            vendor="nvidia" if vendor == "nvidia" else "amd" if vendor == "amd" else None,
            each=entry.each,
            applies=forms.condition(entry.applies, (*loc, "applies"), tables) if entry.applies else None,
            demand=forms.condition(entry.demand, (*loc, "demand"), tables) if entry.demand else None,
            group=forms.group(entry.group, (*loc, "group"), tables) if entry.group else None,
            step=forms.no_return(entry.no_return, (*loc, "no-return")) if entry.no_return else None,
            reports=entry.reports,
        )
    except forms.FormError as error:
        report.error(document.path, document.line(*error.loc), f"rule `{entry.id}`: {error}", error.hint)
        return None


def _shape(entry: RuleEntry) -> str | None:
    """Why the parts of an entry do not belong together; None where they do."""
    if not _ID.fullmatch(entry.id):
        return "an id is letters and a number, then words: F1, F1-present"
    kinds: Mapping[str, object] = {"demand": entry.demand, "group": entry.group, "no-return": entry.no_return}
    given = [name for name, value in kinds.items() if value]
    if len(given) != 1:
        return "it needs one of demand, group and no-return"
    may = {"demand": {"node", "set"}, "group": {"domain", "pool", "set"}, "no-return": {"change"}}[given[0]]
    if not entry.levels or not set(entry.levels) <= may:
        return f"with `{given[0]}` its levels are among {', '.join(sorted(may))}"
    if entry.each is not None and given[0] != "demand":
        return "`each` is for a `demand` only"
    return None
