"""What changed between two snapshots: per node, and nodes that changed alike together."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.base.names import NodeName
from pinsets.facts import NodeFacts, Snapshot, Unreadable

__all__ = ["Changes", "Group", "between"]

Change = tuple[str, str, str]
"""(coordinate or word, before, after)."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes with the same changes."""

    nodes: tuple[NodeName, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """The later snapshot against the earlier one."""

    groups: tuple[Group, ...]
    """The largest first."""
    added: tuple[NodeName, ...]
    gone: tuple[NodeName, ...]
    same: int
    """Nodes in which nothing changed."""

    @property
    def any(self) -> bool:
        """Whether anything changed at all."""
        return bool(self.groups or self.added or self.gone)


def between(before: Snapshot, after: Snapshot) -> Changes:
    """Versions, what could not be read, GPUs seen, serial and boot of every node in both."""
    groups: dict[tuple[Change, ...], list[NodeName]] = {}
    known: dict[tuple[int, int], tuple[Change, ...]] = {}
    same = 0
    for name, now in after.nodes.items():
        earlier = before.nodes.get(name)
        if earlier is None:
            continue
        pair = (id(earlier.facts), id(now.facts))
        if pair not in known:
            known[pair] = tuple(_of_facts(earlier, now))
        changes = (*_of_node(earlier, now), *known[pair])
        if changes:
            groups.setdefault(changes, []).append(name)
        else:
            same += 1
    listed = [Group(tuple(nodes), changes) for changes, nodes in groups.items()]
    return Changes(
        tuple(sorted(listed, key=lambda group: (-len(group.nodes), group.nodes[0]))),
        tuple(name for name in after.nodes if name not in before.nodes),
        tuple(name for name in before.nodes if name not in after.nodes),
        same,
    )


def _of_node(before: NodeFacts, after: NodeFacts) -> list[Change]:
    found: list[Change] = []
    if before.unreachable != after.unreachable:
        found.append(("reachable", before.unreachable or "yes", after.unreachable or "yes"))
    if before.unreachable is not None or after.unreachable is not None:
        return found
    if before.serial and after.serial and before.serial != after.serial:
        found.append(("serial", before.serial, after.serial))
    seen = before.attributes.get("gpus"), after.attributes.get("gpus")
    if seen[0] != seen[1]:
        found.append(("gpus", seen[0] or "not listed", seen[1] or "not listed"))
    if before.boot_id and after.boot_id and before.boot_id != after.boot_id:
        found.append(("boot", "before a boot", "booted since"))
    return found


def _of_facts(before: NodeFacts, after: NodeFacts) -> list[Change]:
    if before.unreachable is not None or after.unreachable is not None:
        return []
    found = []
    for coordinate in sorted({*before.facts, *after.facts}, key=str):
        old, new = before.observation(coordinate), after.observation(coordinate)
        # Two reasons for not knowing are no change of what is known.
        if str(old) != str(new) and not (isinstance(old, Unreadable) and isinstance(new, Unreadable)):
            found.append((str(coordinate), str(old), str(new)))
    return found
