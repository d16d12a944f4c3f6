"""Checks of a fleet file: a tuple of small functions that all run, so that everything wrong is reported at once.

Pinsets and locks are checked by `pinsets.checks`, one layer up.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from inventory import model, unfolding
from lockstep.base import documents, issues, names

__all__ = ["CHECKS", "Check", "Context"]

_OS = re.compile(r"[a-z]+-[a-z0-9.]+-[a-z0-9]+")
_SCHEMES = ("https://", "http://127.", "http://localhost", "http://[::1]", "file:")


@dataclass(frozen=True, slots=True)
class Context:
    """What the checks look at."""

    file: model.FleetFile
    document: documents.Document
    nodes: list[unfolding.Placed]
    skus: dict[str, model.Sku]
    """The SKUs that could be read."""
    known_skus: tuple[str, ...]
    checkout: Path | None = None
    """Root of the checkout, None outside of one."""

    @property
    def path(self) -> str:
        """The fleet file, for messages."""
        return self.document.path

    def line(self, *loc: str | int) -> int | None:
        """Line of an entry."""
        return self.document.line(*loc)

    def node_line(self, placed: unfolding.Placed, *word: str | int) -> int | None:
        """Line of a node's entry, or of a word in it."""
        return self.line("pools", placed.pool_index, "nodes", placed.key, *word)


def fleet_name(context: Context, report: issues.Report) -> None:
    """The fleet's name is a DNS label: it names a Pulumi stack and a folder."""
    name = context.file.fleet
    if name != documents.PLACEHOLDER and not names.is_dns_label(name):
        report.error(context.path, context.line("fleet"), f"`{name}` is no fleet name", _LABEL_HINT)


def pool_names(context: Context, report: issues.Report) -> None:
    """Pools have names of their own that are DNS labels, and nodes."""
    seen: dict[str, int | None] = {}
    for index, pool in enumerate(context.file.pools):
        line = context.line("pools", index, "name")
        if pool.name == documents.PLACEHOLDER:
            continue
        if not names.is_dns_label(pool.name):
            report.error(context.path, line, f"`{pool.name}` is no pool name", _LABEL_HINT)
        if pool.name in seen:
            report.error(context.path, line, f"pool `{pool.name}` is declared twice, first in line {seen[pool.name]}")
        seen.setdefault(pool.name, line)
        if not pool.nodes:
            report.error(context.path, line, f"pool `{pool.name}` has no nodes")
    if not context.file.pools:
        report.error(context.path, context.line("pools"), "the fleet has no pools")


def node_names(context: Context, report: issues.Report) -> None:
    """Node names are what a Kubernetes Node may be called."""
    for placed in context.nodes:
        if not names.is_node_name(placed.node.name):
            hint = "lower-case letters, digits, `-` and `.`; it also names the Kubernetes Node"
            report.error(context.path, context.node_line(placed), f"`{placed.node.name}` is no node name", hint)


def nodes_once(context: Context, report: issues.Report) -> None:
    """A node stands in one pool, once."""
    for first, again in _twice(context.nodes, lambda placed: placed.node.name):
        here, there = context.file.pools[again.pool_index].name, context.file.pools[first.pool_index].name
        where = "twice" if again.pool_index == first.pool_index else f"in two pools, `{there}` and `{here}`"
        report.error(
            context.path,
            context.node_line(again),
            f"node `{again.node.name}` is declared {where}",
            f"first declared in line {context.node_line(first)}",
        )


def addresses_once(context: Context, report: issues.Report) -> None:
    """Two nodes never share an address: one of them would be read, and changed, as the other."""
    for first, again in _twice(context.nodes, lambda placed: _address_key(placed.node.address)):
        if again.node.name != first.node.name:
            report.error(
                context.path,
                context.node_line(again, "address"),
                f"address `{again.node.address}` of `{again.node.name}` is used twice",
                f"`{first.node.name}` has it, line {context.node_line(first, 'address')}",
            )


def slots_once(context: Context, report: issues.Report) -> None:
    """Two nodes never share a slot: the slot keys history and assigned locks."""
    for first, again in _twice(context.nodes, lambda placed: placed.node.slot):
        if again.node.name != first.node.name:
            report.error(
                context.path,
                context.node_line(again, "slot"),
                f"slot `{again.node.slot}` of `{again.node.name}` is used twice",
                f"`{first.node.name}` stands there, line {context.node_line(first, 'slot')}",
            )


def serials_once(context: Context, report: issues.Report) -> None:
    """A chassis serial belongs to one node."""
    declared = [placed for placed in context.nodes if placed.node.serial is not None]
    for first, again in _twice(declared, lambda placed: str(placed.node.serial)):
        if again.node.name != first.node.name:
            report.error(
                context.path,
                context.node_line(again, "serial"),
                f"serial `{again.node.serial}` of `{again.node.name}` is used twice",
                f"`{first.node.name}` has it, line {context.node_line(first, 'serial')}",
            )


def skus_known(context: Context, report: issues.Report) -> None:
    """Each pool's SKU has a file."""
    for index, pool in enumerate(context.file.pools):
        if pool.sku not in context.known_skus and pool.sku != documents.PLACEHOLDER:
            hint = documents.did_you_mean(pool.sku, context.known_skus)
            report.error(context.path, context.line("pools", index, "sku"), f"there is no SKU `{pool.sku}`", hint)


def domains_fit(context: Context, report: issues.Report) -> None:
    """One NVLink domain lies in one pool, and only where the SKU has a fabric over nodes."""
    pool_of: dict[str, int] = {}
    for placed in context.nodes:
        line = context.node_line(placed, "domain")
        first = pool_of.setdefault(placed.node.domain, placed.pool_index)
        if first != placed.pool_index:
            report.error(
                context.path,
                line,
                f"domain `{placed.node.domain}` lies in two pools, `{context.file.pools[first].name}` and "
                f"`{context.file.pools[placed.pool_index].name}`",
                "the nodes of a domain must be identical: one pool",
            )
            pool_of[placed.node.domain] = placed.pool_index
        sku = context.skus.get(context.file.pools[placed.pool_index].sku)
        if sku is not None and sku.nvlink == "rack" and str(placed.node.domain) == placed.node.slot:
            report.warning(
                context.path,
                line,
                f"`{placed.node.name}` declares no NVLink domain, and SKU `{sku.sku}` has a fabric over nodes",
                "add `domain:`",
            )


def os_names(context: Context, report: issues.Report) -> None:
    """`os` has the three parts that name a lock."""
    for index, pool in enumerate(context.file.pools):
        if pool.os != documents.PLACEHOLDER and not _OS.fullmatch(pool.os):
            hint = "write NAME-RELEASE-ARCHITECTURE, such as ubuntu-24.04-amd64"
            report.error(context.path, context.line("pools", index, "os"), f"`{pool.os}` is no operating system", hint)


def holders_named(context: Context, report: issues.Report) -> None:
    """Whoever keeps a node out of service should be known."""
    for placed in context.nodes:
        if placed.node.state in (model.NodeState.HELD, model.NodeState.REPAIR) and not placed.node.holder:
            report.warning(
                context.path,
                context.node_line(placed, "state"),
                f"`{placed.node.name}` is {placed.node.state.value} and nobody is named",
                "add `holder:` with a person or a ticket",
            )


def repositories_trusted(context: Context, report: issues.Report) -> None:
    """Packages come over https, loopback or a file, and signed."""
    for index, entry in enumerate(context.file.repositories):
        line = context.line("repositories", index, "apt" if entry.apt is not None else "rpm")
        if not entry.address.startswith(_SCHEMES):
            hint = "https, http on loopback, or file:"
            report.error(context.path, line, f"`{entry.address}` is no address of a repository", hint)
        if entry.key is None:
            text = f"repository `{entry.address}` names no key: its signature is not checked"
            report.warning(context.path, line, text, "add `key:`")


def sources_given(context: Context, report: issues.Report) -> None:
    """A pool can be read somehow."""
    for index, pool in enumerate(context.file.pools):
        if not pool.sources:
            line = context.line("pools", index, "sources")
            report.error(context.path, line, f"pool `{pool.name}` can be read nowhere", "write `sources: [ssh]`")


Check = Callable[[Context, issues.Report], None]
CHECKS: tuple[Check, ...] = (
    fleet_name,
    pool_names,
    node_names,
    nodes_once,
    addresses_once,
    slots_once,
    serials_once,
    skus_known,
    domains_fit,
    os_names,
    holders_named,
    repositories_trusted,
    sources_given,
)

_LABEL_HINT = "a DNS label: lower-case letters, digits and `-`, at most 63"


def _twice(
    placed: list[unfolding.Placed], key: Callable[[unfolding.Placed], str]
) -> Iterator[tuple[unfolding.Placed, unfolding.Placed]]:
    """(first, again) of every pair with the same key."""
    seen: dict[str, unfolding.Placed] = {}
    for one in placed:
        first = seen.setdefault(key(one), one)
        if first is not one:
            yield first, one


def _address_key(address: str) -> str:
    """One spelling per address: ``::1`` and ``0:0::1`` are the same machine, names ignore case."""
    if ":" not in address:
        # IPv4 has one spelling, since leading zeros are none.
        return address.lower().rstrip(".")
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address.lower().rstrip(".")
