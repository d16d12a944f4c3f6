"""The same protocol on a real API server: many planners at once, and the schema refuses nonsense."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.async_client import AsyncClient
from lightkube.core.exceptions import ApiError

from lockstep.base import errors
from placement.ledger import kubernetes, reservations, stores
from placement.ledger.records import Grant, NodeGrant, Record, State

if TYPE_CHECKING:
    from lab.control_plane_testing import Plane

UNREACHABLE = """
apiVersion: v1
kind: Config
current-context: x
clusters: [{name: x, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}]
contexts: [{name: x, context: {cluster: x, user: x}}]
users: [{name: x, user: {token: none}}]
"""

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def api(plane: Plane) -> Plane:
    with plane.client() as client:
        client.apply(kubernetes.definition(), field_manager="tests", force=True)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                list(client.list(kubernetes.DomainLedger))
                break
            except (ApiError, httpx2.HTTPStatusError) as error:
                # The API serves a new kind a moment after its definition is accepted.
                code = error.status.code if isinstance(error, ApiError) else error.response.status_code
                if code not in (404, 429):
                    raise
            time.sleep(0.2)
    return plane


def _store(plane: Plane) -> tuple[AsyncClient, kubernetes.Kubernetes]:
    client = AsyncClient(KubeConfig.from_file(plane.kubeconfig).get(), trust_env=False)
    return client, kubernetes.Kubernetes(client)


def _part(node: str, *gpus: int) -> tuple[NodeGrant, ...]:
    grants = tuple(Grant(f"{node}/gpu{gpu}", 500, sharing="mps") for gpu in gpus)
    return (NodeGrant(node, grants, cpu=1000, channel=True, tenant="a", exclusive=True, sole=True),)


def test_a_record_comes_back_as_it_was_written(api: Plane) -> None:
    async def play() -> None:
        client, store = _store(api)
        ledger = reservations.Ledger(store, time.time)
        epochs = await ledger.reserve("ns/a", {"Rack 1/NVL": _part("n1", 0, 1)}, "p")
        record, version = await store.read("Rack 1/NVL")
        assert record.holds["ns/a"].nodes == _part("n1", 0, 1)
        assert "Rack 1/NVL" in await store.domains()
        await ledger.confirm("ns/a", epochs)
        with pytest.raises(stores.Conflict):
            await store.replace(record, version)
        await ledger.release("ns/a", epochs)
        assert (await store.read("Rack 1/NVL"))[0].holds["ns/a"].state is State.DRAINING
        assert await ledger.vacate("Rack 1/NVL", "ns/a", "n1")
        await client.close()

    asyncio.run(play())


def test_of_many_planners_one_gets_each_device(api: Plane) -> None:
    async def play() -> None:
        client, store = _store(api)
        ledger = reservations.Ledger(store, time.time)

        async def planner(number: int) -> str | None:
            try:
                await ledger.reserve(f"gang-{number}", {"c1": _part("c1n", number % 2), "c2": _part("c2n", 0)}, "p")
            except (reservations.NotFreeError, stores.Conflict):
                return None
            return f"gang-{number}"

        winners = [name for name in await asyncio.gather(*(planner(number) for number in range(8))) if name]
        held: list[set[str]] = []
        for domain in ("c1", "c2"):
            record, _ = await store.read(domain)
            held.append(set(record.holds))
        assert held[0] == held[1] == set(winners)
        assert len(winners) <= 1
        await client.close()

    asyncio.run(play())


def test_gangs_roll_back_holds_expire_and_a_restart_agrees_with_the_api(api: Plane) -> None:
    async def play() -> None:
        client, store = _store(api)
        ledger = reservations.Ledger(store, time.time)
        bound = await ledger.reserve("there", {"x2": _part("x2n", 0)}, "p")
        await ledger.confirm("there", bound)
        with pytest.raises(reservations.NotFreeError):
            await ledger.reserve("gang", {"x1": _part("x1n", 0), "x2": _part("x2n", 0)}, "p")
        assert (await store.read("x1"))[0].holds == {}
        await ledger.reserve("brief", {"x1": _part("x1n", 0), "x3": _part("x3n", 0)}, "p", seconds=0)
        assert await ledger.expire("x3") == ["brief"]
        assert [(await store.read(domain))[0].holds for domain in ("x1", "x3")] == [{}, {}]
        done = await reservations.Ledger(store, time.time).rebuild(
            [reservations.Bound("lost", {"x3": _part("x3n", 0)})], dead=lambda owner: owner == "p"
        )
        assert done.bound == ("lost",)
        assert "there" in done.draining
        assert (await store.read("x2"))[0].holds["there"].state is State.DRAINING
        assert (await store.read("x3"))[0].holds["lost"].nodes == _part("x3n", 0)
        await client.close()

    asyncio.run(play())


@pytest.mark.parametrize(
    "broken",
    [
        {"epoch": -1},
        {"holds": [{"claim": "x"}]},
        {"domain": ""},
    ],
)
def test_the_schema_refuses_what_is_no_record(api: Plane, broken: dict[str, Any]) -> None:
    async def play() -> None:
        client, _ = _store(api)
        spec = {"domain": "s", "epoch": 0, "holds": [], **broken}
        body = kubernetes.DomainLedger(metadata={"name": "broken"}, spec=spec)
        with pytest.raises(Exception, match=r"Invalid value|Required value|invalid|should be"):
            await client.create(body)
        await client.close()

    asyncio.run(play())


def test_an_api_that_does_not_answer_is_an_engine_error(tmp_path: Any) -> None:
    async def play() -> None:
        (tmp_path / "config").write_text(UNREACHABLE)
        client = AsyncClient(KubeConfig.from_file(tmp_path / "config").get(), trust_env=False)
        store = kubernetes.Kubernetes(client)
        with pytest.raises(errors.EngineError):
            await store.read("r1")
        with pytest.raises(errors.EngineError):
            await store.replace(Record("r1"), "1")
        await client.close()

    asyncio.run(play())
