"""Fixtures of the Pulumi side: a plugin served in this process, and a copy of the checkout that tests may write to."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from inventory import model
from lockstep.base import errors, settings
from lockstep.base.names import DomainName, FleetName, NodeName, PinsetName, PoolName, Slot
from pinsets.facts import Coordinate, NodeFacts, Snapshot
from pinsets.findings import Comparison, Finding, NodeVerdict, Severity, Verdict
from stacks.provider import acts, server, stubs

SKU = model.SkuFile(sku="test", accelerator="TEST", gpus={"0000:01:00.0": "gpu0"})


def fleet(*pools: tuple[str, int], state: model.NodeState = model.NodeState.IN_SERVICE) -> model.Fleet:
    """A fleet `toy` with pools of so many nodes, named POOL-N."""
    return model.Fleet(
        FleetName("toy"),
        model.Ssh(),
        (),
        tuple(
            model.Pool(
                PoolName(name),
                SKU,
                "debian-12-amd64",
                PinsetName("test"),
                (model.Source.SSH,),
                model.Disruption(),
                tuple(
                    model.Node(
                        NodeName(f"{name}-{number}"),
                        PoolName(name),
                        Slot(f"u{number}"),
                        f"127.0.0.{number}",
                        DomainName(f"u{number}"),
                        state=state,
                    )
                    for number in range(1, count + 1)
                ),
            )
            for name, count in pools
        ),
        Path("/nowhere/toy.yaml"),
    )


def reading(of: model.Fleet, deviations: dict[str, dict[str, str]]) -> Any:
    """A reading in which these nodes deviate: node → coordinate (or word) → observed."""
    comparisons = {}
    facts = {}
    for pool in of.pools:
        verdicts = {}
        for node in pool.nodes:
            findings = tuple(_finding(node.name, where, seen) for where, seen in deviations.get(node.name, {}).items())
            verdict = Verdict.DRIFTED if findings else Verdict.ADMIT
            verdicts[node.name] = NodeVerdict(node.name, verdict, findings)
            facts[node.name] = NodeFacts(node.name, 0.0, admission={"lock": "a" * 64})
        comparisons[pool.name] = Comparison(verdicts, {}, ())
    return SimpleNamespace(comparisons=comparisons, snapshot=Snapshot(0.0, facts))


def _finding(node: NodeName, where: str, seen: str) -> Finding:
    coordinate = Coordinate.parse(where) if "@" in where else None
    name = f"pin.{coordinate.component}" if coordinate else where
    return Finding(name, Severity.BLOCK, coordinate, (node,), "1.0", seen, "", "")


class World:
    """What the plugin under test finds and does; tests change it between calls."""

    def __init__(self, where: settings.Settings) -> None:
        self.where = where
        self.fleet = fleet(("p", 3), ("q", 2))
        self.deviations: dict[str, dict[str, str]] = {}
        self.sweeps = 0
        self.acted: list[str] = []
        self.kubeconfigs: list[Path | None] = []
        self.answer = acts.Acted({}, (), ())
        self.refusal: errors.LockstepError | None = None
        self.unreadable: errors.LockstepError | None = None
        self.forbidden: errors.LockstepError | None = None
        self.waiting: dict[NodeName, str] = {}

    def get(self, reference: str) -> model.Fleet:
        """In place of `fleets.Fleets`."""
        return self.fleet

    def read(self, of: model.Fleet, say: Callable[[str], None]) -> Any:
        """In place of a sweep."""
        self.sweeps += 1
        say("reading")
        if self.unreadable is not None:
            raise self.unreadable
        return reading(of, self.deviations)

    def preflight(self, of: model.Fleet, pool: model.Pool) -> None:
        """In place of `bringup.preflight`."""
        if self.forbidden is not None:
            raise self.forbidden

    def act(self, of: model.Fleet, pool: model.Pool, kubeconfig: Path | None, voice: acts.Voice) -> acts.Acted:
        """In place of `bringup.engine`."""
        self.acted.append(str(pool.name))
        self.kubeconfigs.append(kubeconfig)
        voice.say(f"{pool.name}: wave 1")
        if self.refusal is not None:
            raise self.refusal
        return self.answer


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The fake world of a plugin, with no word of a run in the environment."""
    for name in ("ALLOW", "PLAN", "SHRINK", "ACCEPT", "FACTS", "RESULTS"):
        monkeypatch.delenv(f"LOCKSTEP_{name}", raising=False)
    places = settings.Settings(tmp_path, tmp_path / "state", tmp_path / "cache", tmp_path / "labs")
    return World(places)


@pytest.fixture
def plugin(world: World) -> Iterator[Any]:
    """A stub of the protocol, served by `server.Provider` over a real loopback port."""
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = []
    ready = threading.Event()

    async def serve() -> None:
        listening = grpc.aio.server()
        work = server.Work(
            world.where,
            world.read,
            world.act,
            world,  # type: ignore[arg-type]
            world.preflight,
            lambda of, pool, found: world.waiting,
        )
        stubs.provider_grpc.add_ResourceProviderServicer_to_server(server.Provider(work), listening)
        port = listening.add_insecure_port("127.0.0.1:0")
        await listening.start()
        ending = asyncio.Event()
        started.append((asyncio.get_running_loop(), ending, port))
        ready.set()
        await ending.wait()
        await listening.stop(grace=None)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    loop, ending, port = started[0]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield stubs.provider_grpc.ResourceProviderStub(channel)
    loop.call_soon_threadsafe(ending.set)
    thread.join()


def copy_of(checkout: Path, root: Path) -> Path:
    """A copy of the checkout's Pulumi side at ``root``, whose stack and fleet files tests may write."""
    root.mkdir(parents=True)
    for name in ("Pulumi.yaml", "pyproject.toml"):
        shutil.copy(checkout / name, root)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("stacks", "inventory"):
        shutil.copytree(checkout / name, root / name, ignore=ignored)
    for name in ("tools", ".venv", "pinsets"):
        (root / name).symlink_to(checkout / name)
    return root


@pytest.fixture
def copied(tmp_path: Path, checkout: Path) -> Path:
    """`copy_of` at a path with a blank."""
    return copy_of(checkout, tmp_path / "check out")
