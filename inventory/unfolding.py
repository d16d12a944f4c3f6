"""Entries of ``nodes:`` → one node per machine: the ranges of an entry unfold beside its key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from inventory import model
from lockstep.base import documents, errors, hostranges, issues
from lockstep.base.names import DomainName, NodeName, PoolName, Slot

__all__ = ["Placed", "nodes"]

_BRACKETS = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class Placed:
    """A node and where it was written."""

    node: model.Node
    pool_index: int
    """Index in `pools:`."""
    key: str
    """Key of its entry in `nodes:`."""


def nodes(file: model.FleetFile, document: documents.Document, report: issues.Report) -> list[Placed]:
    """Every node of the file, in file order; ranges that are malformed or of unequal length go to ``report``."""
    found: list[Placed] = []
    for index, pool in enumerate(file.pools):
        for key, entry in pool.nodes.items():
            found += _entry(document, report, pool, index, key, entry)
    return found


def _entry(
    document: documents.Document,
    report: issues.Report,
    pool: model.PoolEntry,
    index: int,
    key: str,
    entry: model.NodesEntry,
) -> list[Placed]:
    loc = ("pools", index, "nodes", key)
    line = document.line(*loc)
    names = _unfold(key, document.path, line, report)
    if names is None:
        return []
    columns: dict[str, Sequence[str | None]] = {}
    for word in ("slot", "address", "domain", "serial"):
        value = getattr(entry, word)
        at = document.line(*loc, word)
        values: Sequence[str | None] | None = [None] if value is None else _unfold(value, document.path, at, report)
        if values is None:
            return []
        if value is None or (word == "domain" and len(values) == 1):
            values = [*values] * len(names)
        if len(values) != len(names):
            report.error(
                document.path,
                at,
                f"`{key}` is {_count(len(names), 'node')}, `{word}: {value}` is {_count(len(values), 'value')}",
                f"the ranges of an entry unfold side by side; write {_count(len(names), 'value')}",
            )
            return []
        columns[word] = values
    pool_name = PoolName(pool.name)
    bmcs = _bmcs(document, report, loc, key, names, entry.bmc or pool.bmc)
    if bmcs is None:
        return []
    rows = zip(names, columns["slot"], columns["address"], columns["domain"], columns["serial"], bmcs, strict=True)
    return [
        Placed(
            model.Node(
                name=NodeName(name),
                pool=pool_name,
                slot=Slot(slot or name),
                address=address or name,
                domain=DomainName(domain or slot or name),
                spare=entry.spare,
                state=entry.state,
                holder=entry.holder,
                generation=entry.generation,
                serial=serial,
                bmc=bmc,
                line=line,
                waivers=entry.waivers,
            ),
            index,
            key,
        )
        for name, slot, address, domain, serial, bmc in rows
    ]


def _bmcs(
    document: documents.Document,
    report: issues.Report,
    loc: tuple[str | int, ...],
    key: str,
    names: Sequence[str],
    bmc: model.Bmc | None,
) -> Sequence[model.Bmc | None] | None:
    """One BMC for each node: ``{node}`` in its address filled in, a range in it unfolded beside the names."""
    if bmc is None or bmc.redfish is None:
        return [bmc] * len(names)
    scheme, _, rest = bmc.redfish.partition("://")
    host, slash, path = rest.partition("/")
    line = document.line(*loc, "bmc")
    hosts: Sequence[str] | None = [host] if "{node}" in host or "[" not in host else None
    if hosts is None and (hosts := _unfold(host, document.path, line, report)) is None:
        return None
    if len(hosts) == 1 and "{node}" in host:
        hosts = [host.replace("{node}", name) for name in names]
    if len(hosts) != len(names):
        report.error(
            document.path,
            line,
            f"`{key}` is {_count(len(names), 'node')}, its BMCs are {_count(len(hosts), 'address')}",
            "write `{node}` or a range into the address: every node has a BMC of its own",
        )
        return None
    return [bmc.model_copy(update={"redfish": f"{scheme}://{one}{slash}{path}"}) for one in hosts]


def _unfold(pattern: str, path: str, line: int | None, report: issues.Report) -> list[str] | None:
    """The names in the order written; None when the pattern is wrong, which ``report`` then says."""
    if not (set(pattern) & set("[],&!^@ *?%")):
        return [pattern]
    for inside in _BRACKETS.findall(pattern):
        starts = [int(part.split("-")[0]) for part in inside.split(",") if part.split("-")[0].isdecimal()]
        if starts != sorted(starts):
            # Sets of hosts have no order, so a second range could not stand beside this one.
            report.error(path, line, f"the range `[{inside}]` is not ascending", "write the lower numbers first")
            return None
    try:
        return hostranges.unfold(pattern)
    except errors.InputError as error:
        report.error(path, line, error.message, error.hint)
        return None


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
