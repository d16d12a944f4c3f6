"""Facts of many nodes from their BMCs: bounded, one request at a time for each BMC, one hard deadline for each.

A BMC that trickles keeps its thread beyond the deadline; its node is reported then, and nobody waits for the thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bringup.redfish import bmc, inventory
from bringup.redfish.bmc import Answer, Failure, Way
from inventory.model import Node, Sku
from lockstep.base import credentials, errors
from lockstep.base.names import ComponentName, NodeName
from pinsets import components as registry
from pinsets import normalisers
from pinsets.facts import ABSENT, Coordinate, Fact, NodeFacts, Observation, Snapshot, Unreadable, Version
from pinsets.model import Component

__all__ = ["CONCURRENCY", "DEADLINE_SECONDS", "Asked", "facts_of", "read", "way_of"]

DEADLINE_SECONDS: Final = 240.0
"""A DGX H100's BMC takes two to three minutes for its inventory (NVIDIA infra-controller 1584, 6419)."""
CONCURRENCY: Final = 64
"""BMCs asked at once; each by one request at a time."""
_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Asked:
    """A node and what its parts are called."""

    node: Node
    sku: Sku


def way_of(node: Node) -> Way | Failure:
    """How the node's BMC is reached; a failure where the fleet file gives no Redfish address.

    Raises `errors.InputError` when its credentials cannot be resolved.
    """
    if node.bmc is None or node.bmc.redfish is None:
        return Failure("address", "the fleet file gives no `bmc: {redfish: …}` for it")
    if node.bmc.credentials is None:
        raise errors.InputError("its bmc has no credentials", place=str(node.name), hint="credentials: {file: PATH}")
    secret = credentials.resolve(node.bmc.credentials, place=f"bmc of {node.name}").get_secret_value()
    user, colon, password = secret.partition(":")
    if not colon or not user:
        raise errors.InputError("its bmc credentials are not USER:PASSWORD", place=str(node.name))
    from pydantic import SecretStr

    ca = str(node.bmc.ca) if node.bmc.ca is not None else None
    return Way(node.bmc.redfish, user, SecretStr(password), ca)


def read(
    asked: Sequence[Asked],
    *,
    seconds: float = DEADLINE_SECONDS,
    concurrency: int = CONCURRENCY,
    progress: Callable[[int, int, NodeName], None] | None = None,
    reader: Callable[[Way, float], Answer | Failure] = bmc.read,
) -> Snapshot:
    """Read the BMCs of ``asked``; one that gives nothing is unreachable with class and reason. ``seconds`` for each.

    Raises `errors.InputError` for credentials that cannot be resolved, before any BMC is contacted.
    """
    ways = {one.node.name: way_of(one.node) for one in asked}
    results: dict[NodeName, Answer | Failure] = {n: way for n, way in ways.items() if isinstance(way, Failure)}
    crew = _Crew({name: way for name, way in ways.items() if isinstance(way, Way)}, seconds, reader)
    for name, answer in crew.work(concurrency):
        results[name] = answer
        if progress is not None:
            progress(len(results), len(asked), name)
    at, known = time.time(), registry.load()
    return Snapshot(at, {one.node.name: facts_of(one, results[one.node.name], at, known) for one in asked})


Reader = Callable[[Way, float], "Answer | Failure"]


class _Crew:
    """Threads that ask BMCs; one that is held beyond a deadline is replaced and never waited for."""

    def __init__(self, ways: Mapping[NodeName, Way], seconds: float, reader: Reader) -> None:
        self._ways = ways
        self._seconds = seconds
        self._reader = reader
        self._waiting: queue.SimpleQueue[NodeName] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[NodeName, Answer | Failure | BaseException]] = queue.SimpleQueue()
        self._begun: dict[NodeName, float] = {}
        for name in ways:
            self._waiting.put(name)

    def work(self, concurrency: int) -> Iterator[tuple[NodeName, Answer | Failure]]:
        """Each BMC's name with what it gave, as they end."""
        left = set(self._ways)
        for _ in range(min(concurrency, len(left))):
            self._hire()
        while left:
            try:
                name, answer = self._done.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                late = [name for name in self._late() if name in left]
                for name in late:
                    left.remove(name)
                    self._hire()
                    yield name, Failure("timeout", f"not done in {self._seconds:.0f} s")
                continue
            if isinstance(answer, BaseException):
                raise answer
            if name in left:
                left.remove(name)
                yield name, answer

    def _late(self) -> list[NodeName]:
        now = time.monotonic()
        return [name for name, at in list(self._begun.items()) if now > at + self._seconds + 1]

    def _hire(self) -> None:
        threading.Thread(target=self._labour, daemon=True, name="redfish").start()

    def _labour(self) -> None:
        while True:
            try:
                name = self._waiting.get_nowait()
            except queue.Empty:
                return
            self._begun[name] = time.monotonic()
            try:
                self._done.put((name, self._reader(self._ways[name], self._begun[name] + self._seconds)))
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                self._done.put((name, error))


def facts_of(asked: Asked, answer: Answer | Failure, at: float, known: Mapping[ComponentName, Component]) -> NodeFacts:
    """One BMC's answer → facts; expected instances of a kind that was listed, and are not, are absent."""
    node = asked.node.name
    if isinstance(answer, Failure):
        return NodeFacts(node, at, unreachable=f"BMC {answer}")
    items, serial, power = inventory.system(answer.system)
    listed = inventory.firmware(answer.members, asked.sku)
    facts: dict[Coordinate, Fact] = {}
    for item in (*listed, *items, *inventory.bios_settings(answer.bios)):
        component = known.get(ComponentName(item.component))
        if component is None or item.layer not in (*component.layers, *component.further):
            continue
        coordinate = Coordinate(ComponentName(item.component), item.layer, item.instance)
        if coordinate not in facts or isinstance(facts[coordinate].observation, Unreadable):
            facts[coordinate] = Fact(coordinate, _observed(item), item.source)
    _missing(facts, asked.sku, listed, bool(answer.unread), known)
    attributes = {"bmc.power": power} if power else {}
    if answer.unread:
        attributes["bmc.unread"] = ",".join(sorted(answer.unread))
    if not facts:
        why = "; ".join(f"{name}: {text}" for name, text in answer.unread.items()) or "it lists no firmware we know"
        return NodeFacts(node, at, unreachable=f"BMC answer: {why[:200]}", serial=serial, attributes=attributes)
    return NodeFacts(node, at, facts, serial=serial, attributes=attributes)


def _observed(item: inventory.Item) -> Observation:
    if isinstance(item.value, Unreadable):
        return item.value
    return Version(normalisers.normalise(item.component, item.value), item.value)


def _missing(
    facts: dict[Coordinate, Fact],
    sku: Sku,
    listed: Sequence[inventory.Item],
    incomplete: bool,
    known: Mapping[ComponentName, Component],
) -> None:
    """Where a BMC lists some parts of a kind, those it does not list are gone; where members failed, nobody knows."""
    for component, layer in {(item.component, item.layer) for item in listed if item.layer.value == "running"}:
        kind = known[ComponentName(component)].instance if ComponentName(component) in known else None
        if kind is None:
            continue
        for slot in sku.slots(kind):
            coordinate = Coordinate(ComponentName(component), layer, slot)
            if coordinate not in facts:
                gone: Observation = Unreadable("the BMC did not give every member") if incomplete else ABSENT
                facts[coordinate] = Fact(coordinate, gone, "redfish:FirmwareInventory")
