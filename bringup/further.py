"""What further sources of a pool say of its nodes, joined to a sweep over SSH."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from bringup.sources import reading as sources
from inventory.model import Fleet, Source
from lockstep.base import settings as load_settings
from lockstep.base.settings import Settings
from pinsets import sources as joins
from pinsets.facts import Snapshot

if TYPE_CHECKING:
    from bringup.redfish.memory import Memory

__all__ = ["joined", "with_bmcs"]


@functools.cache
def _memory() -> Memory:
    """Of this process, which is one run."""
    from bringup.redfish import memory

    return memory.Memory()


def with_bmcs(fleet: Fleet, snapshot: Snapshot) -> Snapshot:
    """The sweep with what the BMCs of its nodes say, where their pools name Redfish; asked once for each boot."""
    members = {
        node.name: node
        for pool in fleet.pools
        if Source.REDFISH in pool.sources
        for node in pool.nodes
        if node.name in snapshot.nodes
    }
    if not members:
        return snapshot
    known = _memory()
    boots = {name: snapshot.nodes[name].boot_id for name in members}
    told = {name: facts for name, node in members.items() if (facts := known.recall(node, boots[name])) is not None}
    asked = [name for name in members if name not in told]
    if asked:
        more = sources.of_fleet(Source.REDFISH, fleet, asked, {}, load_settings.load())
        for name, facts in more.nodes.items():
            known.keep(members[name], boots[name], facts)
            told[name] = facts
    both = {name: joins.joined(snapshot.nodes[name], facts) for name, facts in told.items()}
    return Snapshot(snapshot.taken_at, {**snapshot.nodes, **both})


def joined(fleet: Fleet, snapshot: Snapshot, settings: Settings) -> tuple[Snapshot, tuple[str, ...]]:
    """(the sweep with the further sources that its nodes' pools name, those sources)."""
    nodes = dict(snapshot.nodes)
    asked = []
    for word in sources.WORDS:
        members = [
            node.name for pool in fleet.pools if word in pool.sources for node in pool.nodes if node.name in nodes
        ]
        if members:
            more = sources.of_fleet(word, fleet, members, {}, settings)
            nodes |= {name: joins.joined(nodes[name], facts) for name, facts in more.nodes.items() if name in nodes}
            asked.append(word)
    return Snapshot(snapshot.taken_at, nodes), tuple(asked)
