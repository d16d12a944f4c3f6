"""Which SSH host keys are accepted: per node and generation, never learnt from the network.

At first those of the fleet's ``ssh.known_hosts`` (else of the user's and the
machine's files); once a node was read they stand in the journal, and from then on
only the re-image driver brings new ones.
"""

from __future__ import annotations

from collections.abc import Collection

from bringup import targets
from inventory.model import Fleet, Node
from lockstep.base import journal
from lockstep.base.names import NodeName

__all__ = ["of", "pin_first"]


def of(fleet: Fleet, book: journal.Journal | None) -> dict[NodeName, tuple[str, ...]]:
    """Accepted ``TYPE BASE64`` keys of every node; empty where none is known, and then the node is refused."""
    recorded = book.all_host_keys() if book is not None else {}
    unknown = [node for node in fleet.nodes if node.name not in recorded]
    from_files = _from_files(fleet, unknown)
    return {
        node.name: recorded[node.name].keys if node.name in recorded else from_files[node.name] for node in fleet.nodes
    }


def pin_first(fleet: Fleet, read: Collection[NodeName], book: journal.Journal) -> None:
    """Record the keys of nodes that were read for the first time: what they answered with was verified against them."""
    recorded = book.all_host_keys()
    fresh = [node for node in fleet.nodes if node.name in read and node.name not in recorded]
    for name, keys in _from_files(fleet, fresh).items():
        if keys:
            node = fleet.node(name)
            book.pin_host_keys(name, node.generation if node is not None else 1, keys, "known_hosts")


def _from_files(fleet: Fleet, nodes: Collection[Node]) -> dict[NodeName, tuple[str, ...]]:
    """What the known_hosts files say, looked up as the sweep and ssh look it up (alias, address, port)."""
    if not nodes:
        return {}
    ways = targets.for_fleet(fleet)
    return {node.name: ways[node.name].host_keys for node in nodes}
