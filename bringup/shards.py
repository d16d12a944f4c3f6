"""A fleet in parts, for readings that several machines share: whole NVLink domains, the same in every process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inventory.model import Fleet
from lockstep.base import errors
from lockstep.base.names import NodeName
from pinsets.facts import NodeFacts, Snapshot

__all__ = ["Shard", "merged", "parse"]


@dataclass(frozen=True, slots=True)
class Shard:
    """Part ``index`` (from 1) of ``count``."""

    index: int
    count: int

    def of_fleet(self, fleet: Fleet, nodes: Iterable[str]) -> list[NodeName]:
        """Those of ``nodes`` that are in it. A domain is never cut: rules about domains need it whole."""
        domains = sorted({(node.pool, node.domain) for node in fleet.nodes})
        mine = set(domains[self.index - 1 :: self.count])
        wanted = set(nodes)
        return [node.name for node in fleet.nodes if node.name in wanted and (node.pool, node.domain) in mine]

    def of_names(self, names: Sequence[str]) -> list[str]:
        """Of hosts without a fleet file, where no domain is known."""
        return sorted(names)[self.index - 1 :: self.count]


def parse(text: str) -> Shard:
    """``2/8``. Raises `errors.InputError` for anything else."""
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise errors.InputError(f"{text!r} is no shard", place="--shard", hint="write 1/4 to 4/4")
    return Shard(int(match[1]), int(match[2]))


def merged(parts: Sequence[Snapshot]) -> Snapshot:
    """All nodes of all parts; of a node that several hold, a reading before none, then the youngest."""
    nodes: dict[NodeName, NodeFacts] = {}
    for part in parts:
        for name, facts in part.nodes.items():
            other = nodes.get(name)
            if other is None or _better(facts, other):
                nodes[name] = facts
    return Snapshot(min(part.taken_at for part in parts), dict(sorted(nodes.items())))


def _better(one: NodeFacts, other: NodeFacts) -> bool:
    if (one.unreachable is None) != (other.unreachable is None):
        return one.unreachable is None
    return one.observed_at > other.observed_at
