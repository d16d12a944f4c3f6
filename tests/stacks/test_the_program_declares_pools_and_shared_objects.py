"""The components under Pulumi's own mocks: which resources with which inputs and options."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest

from pinsets.facts import Layer
from pinsets.model import Lock, LockedPin
from stacks import pools

from .conftest import fleet


def lock() -> Lock:
    """A lock with one pin, not on disk anywhere."""
    pin = LockedPin(component="driver", layers=(Layer.RUNNING,), version="580.105.08")
    return Lock.model_construct(pinset="test", os="debian-12-amd64", sku=("test",), pins=(pin,), full="a" * 64)


class Recorder(pulumi.runtime.Mocks):
    """Takes every registration down."""

    def __init__(self) -> None:
        self.seen: list[pulumi.runtime.MockResourceArgs] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        """Registers under its own name."""
        self.seen.append(args)
        return f"{args.name}-id", args.inputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        """No function is called."""
        return {}

    def inputs(self, kind: str) -> dict[str, dict[str, Any]]:
        """Name → inputs of every resource of a type."""
        return {args.name: args.inputs for args in self.seen if args.typ == kind}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """A fresh engine that only takes notes, with an event loop of its own: asyncio.run of another test leaves none."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    found = Recorder()
    pulumi.runtime.set_mocks(found, project="lockstep", stack="toy", preview=False)
    yield found
    asyncio.set_event_loop(None)
    loop.close()


def run(program: Any) -> None:
    """Run a program to its end, outputs resolved."""
    pulumi.runtime.test(program)()


def test_every_pool_is_one_resource_with_a_string_per_node(recorder: Recorder, tmp_path: Path) -> None:
    from stacks.components import fleet as components

    declared = fleet(("p", 2), ("q", 1))
    inputs = {str(pool.name): pools.inputs(declared, pool, lock(), tmp_path) for pool in declared.pools}
    run(lambda: components.FleetComponent(declared, inputs))
    found = recorder.inputs(pools.TYPE)
    assert set(found) == {"toy-p", "toy-q"}
    assert found["toy-p"]["nodes"] == {"p-1": "u1 127.0.0.1", "p-2": "u2 127.0.0.2"}
    assert found["toy-p"]["pins"] == {"driver": "580.105.08"}
    assert found["toy-p"]["lock"] == "a" * 64
    assert (found["toy-p"]["pool"], found["toy-p"]["fleet"]) == ("p", "/nowhere/toy.yaml")


def test_a_cluster_gets_one_provider_and_one_group_per_component(recorder: Recorder, tmp_path: Path) -> None:
    from stacks.components import cluster

    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("token: a-secret")
    objects = {"first": [{"kind": "Namespace"}], "second": [{"kind": "DeviceClass"}, {"kind": "ConfigMap"}]}
    run(lambda: cluster.ClusterComponent("toy", kubeconfig, "toy", objects))
    providers = recorder.inputs("pulumi:providers:kubernetes")
    assert list(providers) == ["toy"]
    assert providers["toy"]["kubeconfig"] == str(kubeconfig)
    assert providers["toy"]["clusterIdentifier"] == "toy"
    groups = recorder.inputs("kubernetes:yaml/v2:ConfigGroup")
    assert {name: len(group["objs"]) for name, group in groups.items()} == {"toy-first": 1, "toy-second": 2}
    assert "a-secret" not in str([args.inputs for args in recorder.seen])


def test_a_fleet_in_the_checkout_is_named_and_another_is_a_path(tmp_path: Path) -> None:
    named = fleet(("p", 1))
    inside = tmp_path / "inventory" / "fleets" / "toy.yaml"
    assert pools.reference(type(named)(named.name, named.ssh, (), named.pools, inside), tmp_path) == "toy"
    assert pools.reference(named, tmp_path) == "/nowhere/toy.yaml"


def test_a_replaced_machine_shows_in_its_nodes_string(tmp_path: Path) -> None:
    from dataclasses import replace

    declared = fleet(("p", 1))
    node = replace(declared.pools[0].nodes[0], generation=2)
    pool = replace(declared.pools[0], nodes=(node,))
    assert pools.inputs(declared, pool, lock(), tmp_path)["nodes"] == {"p-1": "u1 127.0.0.1 generation 2"}
