"""DRA fill after kube-scheduler's scheduler_perf (B3): 500 nodes of ten devices, one claim per pod.

(a) is the decision loop through all gates. (b) adds what makes a decision true: reserve and confirm in the
ledger (compare-and-swap on resource versions), the claim's status, the pod's binding, over HTTP to a stand-in
API in a process of its own; (c) is (b) against a real kube-apiserver, where the lab's programs are built.
The published rates are kube-scheduler's wall rates on 6 processors, API server and etcd included.
"""

from __future__ import annotations

import asyncio
import collections
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.core.async_client import AsyncClient
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import Container, PodResourceClaim, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.resource_v1 import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceClaim,
    DeviceRequest,
    DeviceRequestAllocationResult,
    ExactDeviceRequest,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim

from bench import api_stub, placement_gangs
from bench.rows import Row
from lockstep.base import errors, programs
from placement import planner, requests, topology
from placement.ledger import decisions, kubernetes, reservations
from placement.ledger.reservations import Epochs
from placement.simulate import openb_runs
from placement.tasks import Task, Workload

__all__ = ["rows"]

NODES, DEVICES = 500, 10
BATCH = 10
IN_FLIGHT = 16
"""Bindings under way at once; decisions are made one after the other."""
BINDING = create_namespaced_resource("", "v1", "Binding", "bindings")
"""As a generic kind: the API answers with a Status, which lightkube's own Binding cannot be read from."""
DRIVER = "gpu.example.com"
PEER = "kube-scheduler"
FILL, EMPTY, HALF, FULL, SELECTOR, MATCH = 324.0, 273.0, 258.0, 260.0, 244.0, 117.0
"""Pods per second, the best that was published (PR 140254, issue 140877)."""

Ask = Callable[[int], requests.Request]


def rows(quick: bool) -> Iterator[Row]:
    """Per case (a), (b); at the end the fill with (c)."""
    scale = 10 if quick else 1
    yield from _cases("decisions", _decided, scale)
    with api_stub.running() as url:
        config = KubeConfig.from_one(cluster=Cluster(server=url), user=User(token="none"))
        yield from _cases("decisions, ledger and bind", _over(config), scale)
    yield from _real(100 if quick else 250)


def _cases(what: str, play: Callable[[_Cluster, list[int], bool], tuple[float, float]], scale: int) -> Iterator[Row]:
    half, whole = NODES * DEVICES // 2 // scale, NODES * DEVICES // scale
    turns = 1000 // scale
    cases: tuple[tuple[str, Ask, int, int, bool, float], ...] = (
        ("fill", _one, half, half, False, FILL),
        ("steady, empty", _one, 0, turns, True, EMPTY),
        ("steady, half full", _one, half, turns, True, HALF),
        ("steady, full", _one, whole - BATCH, turns, True, FULL),
        ("fill with selector", _selected, half, half, False, SELECTOR),
        ("fill with match-attribute", _matched, 1000 // scale, 1000 // scale, False, MATCH),
    )
    for name, ask, there, measured, steady, published in cases:
        cluster = _Cluster(NODES // scale, ask, name.replace(" ", "-").replace(",", ""))
        cluster.occupy(there)
        cpu, wall = play(cluster, list(range(there, there + measured)), steady)
        case = f"{name}: {what}"
        yield Row(f"{case}, per CPU second", "rate", "1/s", measured / cpu, published, PEER)
        yield Row(f"{case}, per second", "rate", "1/s", measured / wall, published, PEER)


def _one(number: int) -> requests.Request:
    return requests.of_task(f"pod-{number}", Task(100, 64, 1, 1000))


def _selected(number: int) -> requests.Request:
    return requests.of_task(f"pod-{number}", Task(100, 64, 1, 1000, frozenset({"AB"[number % 2]})))


def _matched(number: int) -> requests.Request:
    return requests.Request(f"pod-{number}", (requests.Member(gpus=2, cpu=100, memory=64, one_root=True),))


class _Cluster:
    """500 nodes of ten devices under two roots, half of each model; a planner with all gates on."""

    def __init__(self, nodes: int, ask: Ask, name: str) -> None:
        self.topology = topology.build(
            [
                topology.NodeSpec(
                    f"{name}-{node:03d}", 64_000, 1 << 18, DEVICES, "AB"[node % 2], numa=(0,) * 5 + (1,) * 5
                )
                for node in range(nodes)
            ]
        )
        view, samples = placement_gangs.full_view(self.topology)
        kinds = {Task(100, 64, 1, 1000, models): 1.0 for models in {ask(0).models, ask(1).models}}
        generator = np.random.default_rng(42)
        policy = openb_runs.POLICIES["ours"](
            view.occupancy.state, Workload.counted(kinds), generator.permutation(nodes), generator
        )
        self.planner = planner.Planner(view, samples, policy)
        self.ask, self.name = ask, name

    def decide(self, number: int) -> planner.Decision:
        """One pod, committed to the planner's own view."""
        decision = self.planner.plan(self.ask(number), 1000.0 + number / 10_000)
        self.planner.commit(decision)
        return decision

    def occupy(self, pods: int) -> None:
        """What is there before."""
        for number in range(pods):
            self.decide(number)


def _decided(cluster: _Cluster, pods: list[int], steady: bool) -> tuple[float, float]:
    """CPU and wall seconds of (a)."""
    cpu, wall = time.process_time(), time.perf_counter()
    for batch in _batches(pods):
        for number in batch:
            cluster.decide(number)
        if steady:
            for number in batch:
                cluster.planner.release(f"pod-{number}")
    return time.process_time() - cpu, time.perf_counter() - wall


def _batches(pods: list[int]) -> Iterator[list[int]]:
    return (pods[at : at + BATCH] for at in range(0, len(pods), BATCH))


def _over(config: KubeConfig) -> Callable[[_Cluster, list[int], bool], tuple[float, float]]:
    """(b) over one API."""
    return lambda cluster, pods, steady: asyncio.run(_bound(config, cluster, pods, steady))


async def _bound(config: KubeConfig, cluster: _Cluster, pods: list[int], steady: bool) -> tuple[float, float]:
    """CPU seconds of this process and wall seconds of (b)."""
    client = AsyncClient(config.get(), trust_env=False)
    binding = _Binding(client, cluster)
    try:
        for number in pods:
            await binding.create(number)
        cpu, wall = time.process_time(), time.perf_counter()
        for batch in _batches(pods):
            await _together(binding.place(number, cluster.decide(number)) for number in batch)
            if steady:
                await _together(binding.end(number) for number in batch)
                for number in batch:
                    cluster.planner.release(f"pod-{number}")
        return time.process_time() - cpu, time.perf_counter() - wall
    finally:
        await client.close()


async def _together(work: Iterable[Awaitable[None]]) -> None:
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def one(item: Awaitable[None]) -> None:
        async with gate:
            await item

    await asyncio.gather(*(one(item) for item in work))


class _Binding:
    """What follows a decision, pod by pod."""

    def __init__(self, client: AsyncClient, cluster: _Cluster) -> None:
        self._client, self._cluster = client, cluster
        capacities = decisions.capacities(cluster.topology)
        self._ledger = reservations.Ledger(kubernetes.Kubernetes(client), time.time, capacities)
        self._turns: dict[str, asyncio.Lock] = collections.defaultdict(asyncio.Lock)
        """Per domain (here: node): one planner does not race itself for a record."""
        self._epochs: dict[int, Epochs] = {}
        self._claims: dict[int, ResourceClaim] = {}

    def _name(self, number: int) -> str:
        return f"{self._cluster.name}-{number}"

    async def create(self, number: int) -> None:
        """The pod and its claim, as a controller would; not measured."""
        name, devices = self._name(number), self._cluster.ask(number).members[0].gpus
        exactly = ExactDeviceRequest(deviceClassName="gpu", count=devices)
        spec = ResourceClaimSpec(devices=DeviceClaim(requests=[DeviceRequest("gpu", exactly=exactly)]))
        claim = ResourceClaim(metadata=ObjectMeta(name=name, namespace="default"), spec=spec)
        self._claims[number] = await self._client.create(claim)
        pod = PodSpec(
            containers=[Container("work", image="none")],
            schedulerName="lockstep",
            resourceClaims=[PodResourceClaim("gpu", resourceClaimName=name)],
        )
        await self._client.create(Pod(metadata=ObjectMeta(name=name, namespace="default"), spec=pod))

    async def place(self, number: int, decision: planner.Decision) -> None:
        """Reserve, confirm, allocate the claim, bind the pod."""
        name, placed = self._name(number), decision.members[0]
        node = self._cluster.topology.names[placed.node]
        parts = decisions.parts(self._cluster.topology, decision.members)
        async with self._turns[node]:
            epochs = await self._ledger.reserve(name, parts, "bench")
            await self._ledger.confirm(name, epochs)
        self._epochs[number] = epochs
        claim = self._claims[number]
        results = [DeviceRequestAllocationResult(f"gpu{gpu}", DRIVER, node, "gpu") for gpu in placed.gpus]
        claim.status = ResourceClaimStatus(
            allocation=AllocationResult(devices=DeviceAllocationResult(results=results)),
            reservedFor=[ResourceClaimConsumerReference(name, "pods", f"{name}-uid")],
        )
        await self._client.replace(
            ResourceClaim.Status(metadata=claim.metadata, spec=claim.spec, status=claim.status), name=name
        )
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        await self._client.create(BINDING(metadata=ObjectMeta(name=name, namespace="default"), target=target))

    async def end(self, number: int) -> None:
        """Release, and the node lets go."""
        name, epochs = self._name(number), self._epochs.pop(number)
        for domain in epochs:
            async with self._turns[domain]:
                await self._ledger.release(name, epochs)
                await self._ledger.vacate(domain, name, domain)


def _real(pods: int) -> Iterator[Row]:
    """(c): the fill on a real API server, without its scheduler and controllers taking part."""
    from lab import control_plane_testing

    try:
        for name in ("etcd", "kube-apiserver"):
            programs.find(name)
    except errors.LockstepError as error:
        print(f"no row for a real API server: {error.message}; {error.hint}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder, control_plane_testing.running(Path(folder) / "lab") as plane:
        with plane.client() as client:
            client.apply(kubernetes.definition(), field_manager="bench", force=True)
        time.sleep(3)
        config = KubeConfig.from_file(plane.kubeconfig)
        cluster = _Cluster(NODES, _one, "real")
        cluster.occupy(NODES * DEVICES // 2)
        cpu, wall = _over(config)(cluster, list(range(2500, 2500 + pods)), False)
        case = f"fill, {pods} pods: decisions, ledger and bind, real API server"
        yield Row(f"{case}, per CPU second", "rate", "1/s", pods / cpu, FILL, PEER)
        yield Row(f"{case}, per second", "rate", "1/s", pods / wall, FILL, PEER)
