"""`lockstep show`: a fleet as a tree or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import rich.console
import rich.tree
import typer
from rich.text import Text

from lockstep.base import settings
from lockstep.cli import options

if TYPE_CHECKING:
    from inventory.model import Fleet, Node

__all__ = ["command"]


def command(
    fleet: options.FleetArgument,
    output: Annotated[str, typer.Option("--format", help="tree or json.", metavar="FORMAT")] = "tree",
) -> None:
    """Print a fleet: pools, NVLink domains, nodes with slot and address. Contacts nothing.

    \b
    Example:
      lockstep show lab
      lockstep show lab --format json
    """
    from inventory import load

    options.one_of(output, "tree", "json")
    found = load.fleet(fleet, settings.load())
    if output == "json":
        print(json.dumps({"fleet": found.name, "nodes": [_entry(node) for node in found.nodes]}, indent=2))
        return
    rich.console.Console(highlight=False).print(_tree(found))


def _entry(node: Node) -> dict[str, object]:
    return {
        "name": node.name,
        "pool": node.pool,
        "slot": node.slot,
        "address": node.address,
        "domain": node.domain,
        "spare": node.spare,
    }


def _tree(fleet: Fleet) -> rich.tree.Tree:
    tree = rich.tree.Tree(Text(f"fleet {fleet.name}"))
    for pool in fleet.pools:
        title = Text(f"{pool.name} ", style="bold")
        title.append(f"{pool.sku.sku}, {pool.os}, {pool.pinset}, {len(pool.nodes)} nodes", style="not bold")
        branch = tree.add(title)
        domains: dict[str, list[Node]] = {}
        for node in pool.nodes:
            domains.setdefault(node.domain, []).append(node)
        for domain, nodes in domains.items():
            alone = len(nodes) == 1 and nodes[0].domain == str(nodes[0].slot)
            under = branch if alone else branch.add(Text(f"NVLink domain {domain}"))
            for node in nodes:
                under.add(Text("  ".join(_words(node))))
    return tree


def _words(node: Node) -> Iterable[str]:
    yield node.name
    yield node.slot
    yield node.address
    if node.state.value != "in-service":
        yield node.state.value + (f" by {node.holder}" if node.holder else "")
    if node.spare:
        yield "spare"
    if node.generation > 1:
        yield f"generation {node.generation}"
