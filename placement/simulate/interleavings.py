"""Many planners over one ledger on a virtual clock: every await is a place where another may go on, or one may die.

No event loop and no sleeping: coroutines are stepped by hand in an order drawn from a
seed, so a failure repeats by its seed. Nodes and the cluster's API are modelled
independently of the ledger and raise `Violation` when a device would run two claims.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Generator, Mapping
from dataclasses import dataclass, field

import numpy as np

from placement.ledger import records, reservations, stores
from placement.ledger.records import Grant, NodeGrant, Record, State
from placement.simulate import histories

__all__ = ["Outcome", "Scenario", "Violation", "run"]

STALE_SECONDS = 0.5
"""Oldest snapshot that a planner decides on."""
HOLD_SECONDS = 5.0
STEP_SECONDS = 0.04
"""Mean virtual time of one step."""


class Violation(AssertionError):  # noqa: N818 - it is a verdict, not an error of the caller
    """A safety property was broken; the message names it and the seed repeats it."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one interleaving plays."""

    planners: int
    domains: int = 3
    nodes: int = 2
    """Per domain."""
    devices: int = 2
    """Per node."""
    claims: int = 3
    """Per planner."""
    crash: float = 0.01
    """Probability of a planner dying at a step of its own."""
    ledger: type[reservations.Ledger] = reservations.Ledger
    """Tests put a broken one here and expect a `Violation`."""


@dataclass(slots=True)
class Outcome:
    """Counts of one interleaving."""

    steps: int = 0
    placed: int = 0
    conflicts: int = 0
    """Reservations refused at commit: the planner's snapshot was stale."""
    crashes: int = 0
    latencies: list[float] = field(default_factory=list)
    """Virtual seconds from decision to held."""


class _Pause:
    """One suspension."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class _World:
    """The truth outside the ledger: clock, nodes, API."""

    def __init__(self, scenario: Scenario, generator: np.random.Generator) -> None:
        self.now = 0.0
        self.generator = generator
        self.running: dict[str, str] = {}
        """Device → claim that uses it on its node."""
        self.allocated: dict[str, dict[str, tuple[NodeGrant, ...]]] = {}
        """Claim → domain → grants, as the cluster's API has them."""
        self.lease = ""
        """Who rebuilds now: one at a time, as the engine's Lease has it."""
        self.history = histories.History()
        self.store = _Store(self)
        self.ledger = scenario.ledger(self.store, lambda: self.now)

    def start(self, claim: str, parts: Mapping[str, tuple[NodeGrant, ...]]) -> None:
        """The scheduler allocates and the nodes start the work. Raises `Violation` if a device runs another claim."""
        for part in parts.values():
            for node in part:
                for grant in node.grants:
                    if self.running.get(grant.device, claim) != claim:
                        raise Violation(f"{grant.device} runs {self.running[grant.device]} and would run {claim}")
        for part in parts.values():
            for node in part:
                self.running.update(dict.fromkeys((grant.device for grant in node.grants), claim))
        self.allocated[claim] = dict(parts)

    def stop(self, claim: str, node: str) -> None:
        """The node ends the work of a claim."""
        self.running = {d: c for d, c in self.running.items() if c != claim or not d.startswith(f"{node}/")}


class _Store(stores.Memory):
    """A memory store that suspends before and after every call, remembers its past, and checks itself."""

    def __init__(self, world: _World) -> None:
        super().__init__()
        self._world = world
        self.past: dict[str, list[tuple[float, Record]]] = {}

    async def read(self, domain: str) -> stores.Versioned:
        await _Pause()
        return await super().read(domain)

    async def replace(self, record: Record, version: str) -> stores.Versioned:
        await _Pause()
        written = await super().replace(record, version)
        _check_record(record)
        past = self.past.setdefault(record.domain, [(-1.0, Record(record.domain))])
        self._world.history.observe(past[-1][1], record)
        past.append((self._world.now, record))
        await _Pause()
        return written

    def as_of(self, domain: str, when: float) -> Record:
        """The record that a snapshot taken at ``when`` shows."""
        past = self.past.get(domain, [])
        return next((record for time, record in reversed(past) if time <= when), Record(domain))


def _check_record(record: Record) -> None:
    """No device in two claims, nobody beside who is to be alone; epochs unique and not above the record's."""
    owner: dict[str, str] = {}
    on: dict[str, list[NodeGrant]] = {}
    for claim, hold in record.holds.items():
        for node in hold.nodes:
            others = on.setdefault(node.node, [])
            if any(other.sole or node.sole for other in others):
                raise Violation(f"{claim} and others are on {node.node}, and one of them has the whole node")
            if any((other.exclusive or node.exclusive) and other.tenant != node.tenant for other in others):
                raise Violation(f"{claim} is on {node.node} beside another tenant, and one of both is to be alone")
            if any(other.channel and node.channel for other in others):
                raise Violation(f"{claim} shares the channel of {node.node}")
            others.append(node)
            for grant in node.grants:
                if owner.setdefault(grant.device, claim) != claim:
                    raise Violation(f"{grant.device} is in {owner[grant.device]} and {claim}")
    epochs = [hold.epoch for hold in record.holds.values()]
    if len(set(epochs)) != len(epochs) or max(epochs, default=0) > record.epoch:
        raise Violation(f"domain {record.domain}: epochs {epochs} under {record.epoch}")


async def _planner(world: _World, scenario: Scenario, name: str, outcome: Outcome) -> None:
    """Decide on a stale snapshot, reserve, bind, let run, release; some pods are deleted by force."""
    for number in range(scenario.claims):
        claim = f"{name}-{number}"
        for _ in range(3):
            parts = _decide(world, scenario)
            if parts is None:
                await _Pause()
                continue
            begun = world.now
            call = world.history.invoke(claim, parts)
            try:
                epochs = await world.ledger.reserve(claim, parts, name, seconds=HOLD_SECONDS)
            except reservations.NotFreeError as refused:
                outcome.conflicts += 1
                world.history.refused(call, str(refused))
                continue
            except stores.Conflict:
                outcome.conflicts += 1
                world.history.refused(call, "")
                continue
            world.history.held(call)
            outcome.latencies.append(world.now - begun)
            await _live(world, claim, parts, epochs, outcome)
            break


async def _live(
    world: _World,
    claim: str,
    parts: dict[str, tuple[NodeGrant, ...]],
    epochs: records.Epochs,
    outcome: Outcome,
) -> None:
    """From held to released."""
    fate = world.generator.random()
    if fate < 0.15:
        await world.ledger.release(claim, epochs)
        return
    if fate < 0.25:
        world.now += HOLD_SECONDS  # a planner that thinks too long: its hold may be over
        await _Pause()
    try:
        await world.ledger.confirm(claim, epochs)
    except reservations.StaleEpochError:
        return
    world.start(claim, parts)
    outcome.placed += 1
    for _ in range(int(world.generator.integers(4))):
        await _Pause()
    # The claim goes from the API first, the nodes still run: a forced deletion looks just like this.
    world.allocated.pop(claim, None)
    await world.ledger.release(claim, epochs)
    if world.generator.random() < 0.2:
        await world.ledger.release(claim, epochs)  # a duplicate message


def _decide(world: _World, scenario: Scenario) -> dict[str, tuple[NodeGrant, ...]] | None:
    """One to four devices in one or two domains, Zipf-skewed, free in a snapshot up to half a second old."""
    draw = world.generator
    chosen = {int(min(draw.zipf(1.5), scenario.domains)) - 1 for _ in range(1 + (draw.random() < 0.3))}
    parts: dict[str, tuple[NodeGrant, ...]] = {}
    for number in sorted(chosen):
        domain = f"d{number}"
        snapshot = world.store.as_of(domain, world.now - draw.uniform(0, STALE_SECONDS))
        node = f"{domain}n{int(draw.integers(scenario.nodes))}"
        wanted = int(draw.integers(1, scenario.devices + 1))
        grants = [Grant(f"{node}/gpu{gpu}") for gpu in draw.permutation(scenario.devices)[:wanted]]
        ask = (
            NodeGrant(
                node,
                tuple(grants),
                channel=bool(draw.random() < 0.2),
                tenant=str(draw.choice(("a", "b"))),
                exclusive=bool(draw.random() < 0.2),
                sole=bool(draw.random() < 0.05),
            ),
        )
        if world.ledger.predicate(snapshot, ask) is not None:
            return None
        parts[domain] = ask
    return parts


async def _janitor(world: _World, scenario: Scenario, rounds: int) -> None:
    """Expires, and lets nodes report what they still run."""
    for _ in range(rounds):
        for number in range(scenario.domains):
            domain = f"d{number}"
            await world.ledger.expire(domain)
            record, _ = await world.store.read(domain)
            for claim, hold in record.holds.items():
                if hold.state is State.DRAINING and world.generator.random() < 0.7:
                    for node in hold.nodes:
                        if claim not in world.allocated:
                            world.stop(claim, node.node)
                            await world.ledger.vacate(domain, claim, node.node)


async def _recover(world: _World, scenario: Scenario, alive: Mapping[str, object], name: str, outcome: Outcome) -> None:
    """A planner's successor: agrees with the API first, then goes on as a new planner."""

    def dead(owner: str) -> bool:
        return owner not in alive

    while world.lease in alive and world.lease != name:
        await _Pause()
    world.lease = name
    bound = [reservations.Bound(claim, parts) for claim, parts in world.allocated.items() if dead(_owner(claim))]
    await world.ledger.rebuild(bound, dead=dead)
    for item in bound:
        world.allocated.pop(item.claim, None)  # its pods are deleted; nodes let go later
        epochs = {domain: (await world.store.read(domain))[0].holds[item.claim].epoch for domain in item.domains}
        await world.ledger.release(item.claim, epochs)
    world.lease = ""
    await _planner(world, scenario, name, outcome)


def _owner(claim: str) -> str:
    return claim.rsplit("-", 1)[0]


def run(scenario: Scenario, seed: int) -> Outcome:
    """Play one interleaving to its end and check that nothing is left. Raises `Violation`."""
    generator = np.random.default_rng(seed)
    world, outcome, serial = _World(scenario, generator), Outcome(), itertools.count(scenario.planners)
    alive: dict[str, Coroutine[None, None, None]] = {
        f"p{number}": _planner(world, scenario, f"p{number}", outcome) for number in range(scenario.planners)
    }
    alive["janitor"] = _janitor(world, scenario, 2 * scenario.planners)
    while alive:
        name = list(alive)[int(generator.integers(len(alive)))]
        outcome.steps += 1
        world.history.tick()
        world.now += float(generator.exponential(STEP_SECONDS))
        if name != "janitor" and generator.random() < scenario.crash:
            alive.pop(name).close()
            outcome.crashes += 1
            successor = f"p{next(serial)}"
            alive[successor] = _recover(world, scenario, alive, successor, outcome)
            continue
        try:
            alive[name].send(None)
        except StopIteration:
            del alive[name]
    _finish(world, scenario)
    world.history.check()
    return outcome


def _finish(world: _World, scenario: Scenario) -> None:
    """Everybody is gone: after every deadline and with the nodes idle nothing may be held."""
    world.allocated.clear()
    world.now += 10 * HOLD_SECONDS
    for _ in range(6):
        _drive(_janitor(world, scenario, 3))
    left = [
        f"{record.domain}:{claim} {hold.state}"
        for domain in range(scenario.domains)
        for record in [world.store.as_of(f"d{domain}", world.now)]
        for claim, hold in record.holds.items()
    ]
    if left:
        raise Violation(f"leaked holds: {', '.join(left)}")
    if world.running:
        raise Violation(f"nodes still run {sorted(set(world.running.values()))} that the ledger does not know")


def _drive(coroutine: Coroutine[None, None, None]) -> None:
    """Run a coroutine of ours to its end, alone."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration:
        return
