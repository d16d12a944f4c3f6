"""The plugin over its own gRPC port, without an engine: what each call answers, and that only acts act."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2

from inventory import model
from lockstep.base import errors
from lockstep.base.names import NodeName
from stacks.provider import acts, structs, stubs

from .conftest import World, fleet

INPUTS = {
    "fleet": "toy",
    "pool": "p",
    "lock": "a" * 64,
    "pins": {"driver": "1.0"},
    "nodes": {"p-1": "u1 127.0.0.1", "p-2": "u2 127.0.0.2"},
}
URN = "urn:pulumi:toy::lockstep::lockstep:fleet:NodePool::toy-p"
DEVIATES = {"p-2": {"driver@running": "2.0", "firmware.gpu[gpu0]@running": "97"}}


def read(plugin: Any, pool: str = "p") -> dict[str, Any]:
    """The outputs of a Read."""
    request = stubs.provider.ReadRequest(id=f"toy/{pool}", urn=URN, inputs=structs.struct({**INPUTS, "pool": pool}))
    answer = plugin.Read(request)
    assert answer.refresh_before_update
    return structs.plain(answer.properties)


def diff(plugin: Any, new: dict[str, Any], skew: dict[str, Any] | None = None) -> Any:
    """A Diff from `INPUTS` to ``new`` with the outputs of a reading."""
    outputs = structs.struct({"lock": INPUTS["lock"], "skew": skew or {}})
    return plugin.Diff(
        stubs.provider.DiffRequest(olds=outputs, old_inputs=structs.struct(INPUTS), news=structs.struct(new))
    )


def update(plugin: Any, preview: bool = False) -> Any:
    """An Update with unchanged inputs."""
    news = structs.struct(INPUTS)
    return plugin.Update(stubs.provider.UpdateRequest(id="toy/p", urn=URN, news=news, preview=preview))


def init_failure(error: grpc.RpcError) -> Any:
    """What the engine takes from a failed call of a resource that exists."""
    trailers = dict(error.trailing_metadata())
    status = stubs.status.Status.FromString(trailers[structs.INIT_FAILED])
    failure = stubs.provider.ErrorResourceInitFailed()
    assert status.details[0].Unpack(failure)
    return failure


def test_the_handshake_accepts_secrets_resources_and_outputs(plugin: Any) -> None:
    answer = plugin.Handshake(stubs.provider.ProviderHandshakeRequest(engine_address=""))
    assert (answer.accept_secrets, answer.accept_resources, answer.accept_outputs) == (True, True, True)


def test_previews_are_supported_and_the_version_is_the_resources(plugin: Any) -> None:
    assert plugin.Configure(stubs.provider.ConfigureRequest()).supportsPreview
    assert plugin.GetPluginInfo(empty_pb2.Empty()).version == "0.1.0"


def test_a_changed_provider_is_never_a_change(plugin: Any) -> None:
    answer = plugin.DiffConfig(stubs.provider.DiffRequest())
    assert answer.changes == stubs.provider.DiffResponse.DIFF_NONE
    assert not answer.replaces


def test_reading_a_pool_in_step_gives_an_empty_skew(plugin: Any) -> None:
    assert read(plugin) == {"lock": "a" * 64, "skew": {}}


def test_reading_names_only_what_deviates(plugin: Any, world: World) -> None:
    world.deviations = DEVIATES
    assert read(plugin)["skew"] == {
        "p-2": {"driver@running": "2.0 (pinned 1.0)", "firmware.gpu[gpu0]@running": "97 (pinned 1.0)"}
    }


def test_two_pools_share_one_sweep(plugin: Any, world: World) -> None:
    world.deviations = {"q-1": {"driver@running": "2.0"}}
    assert read(plugin, "p")["skew"] == {}
    assert list(read(plugin, "q")["skew"]) == ["q-1"]
    assert world.sweeps == 1


def test_after_an_act_facts_are_read_anew(plugin: Any, world: World) -> None:
    world.deviations = DEVIATES
    read(plugin)
    update(plugin)
    world.deviations = {}
    assert read(plugin)["skew"] == {}
    assert world.sweeps == 2


def test_a_node_that_was_not_read_is_never_echoed_from_old_state(plugin: Any, world: World) -> None:
    world.deviations = {"p-2": {"unreachable": "no answer in 30 s"}}
    request = stubs.provider.ReadRequest(
        id="toy/p", urn=URN, inputs=structs.struct(INPUTS), properties=structs.struct({"skew": DEVIATES})
    )
    assert structs.plain(plugin.Read(request).properties)["skew"] == {"p-2": {"unreachable": "no answer in 30 s"}}


def test_a_node_in_step_that_waits_for_its_admission_is_a_change(plugin: Any, world: World) -> None:
    world.waiting = {NodeName("p-1"): "stage join was interrupted"}
    assert read(plugin)["skew"] == {"p-1": {"admission": "stage join was interrupted"}}


def test_nodes_out_of_service_are_no_change(plugin: Any, world: World) -> None:
    world.fleet = fleet(("p", 3), ("q", 2), state=model.NodeState.REPAIR)
    world.deviations = DEVIATES
    assert read(plugin)["skew"] == {}


def test_a_reading_that_fails_as_a_whole_says_so_and_keeps_the_preview_going(plugin: Any, world: World) -> None:
    world.unreadable = errors.InputError("the lock is stale")
    assert read(plugin)["skew"] == {"p": {"unreadable": "the lock is stale"}}


def test_a_pool_that_left_the_fleet_file_is_said_to_have_left(plugin: Any, world: World) -> None:
    world.fleet = fleet(("q", 2))
    assert "no pool `p`" in read(plugin)["skew"]["p"]["unreadable"]


def test_reading_by_identity_alone_needs_a_pools_identity(plugin: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        plugin.Read(stubs.provider.ReadRequest(id="nonsense", urn=URN))
    assert "FLEET/POOL" in caught.value.details()


def test_without_a_change_there_is_no_difference(plugin: Any) -> None:
    assert diff(plugin, INPUTS).changes == stubs.provider.DiffResponse.DIFF_NONE


def test_each_deviation_is_a_deletion_with_its_own_path(plugin: Any) -> None:
    answer = diff(plugin, INPUTS, {"p-2": {"driver@running": "2.0 (pinned 1.0)"}})
    assert answer.changes == stubs.provider.DiffResponse.DIFF_SOME
    assert dict(answer.detailedDiff)['skew["p-2"]["driver@running"]'].kind == stubs.provider.PropertyDiff.DELETE
    assert list(answer.diffs) == ["skew"]


@pytest.mark.parametrize(
    ("change", "path", "kind"),
    [
        ({"lock": "b" * 64}, "lock", "UPDATE"),
        ({"pins": {"driver": "3.0"}}, 'pins["driver"]', "UPDATE"),
        ({"nodes": {**INPUTS["nodes"], "p-3": "u3 127.0.0.3"}}, 'nodes["p-3"]', "ADD"),  # type: ignore[dict-item]
        ({"nodes": {"p-1": "u1 127.0.0.1"}}, 'nodes["p-2"]', "DELETE"),
        ({"nodes": {**INPUTS["nodes"], "p-2": "u2 127.0.0.9"}}, 'nodes["p-2"]', "UPDATE"),  # type: ignore[dict-item]
        ({"pool": "renamed"}, "pool", "UPDATE"),
        ({"fleet": "other"}, "fleet", "UPDATE"),
    ],
)
def test_a_changed_declaration_is_an_update_and_never_a_replacement(
    plugin: Any, change: dict[str, Any], path: str, kind: str
) -> None:
    answer = diff(plugin, {**INPUTS, **change})
    found = {name: stubs.provider.PropertyDiff.Kind.Name(entry.kind) for name, entry in answer.detailedDiff.items()}
    assert found == {path: kind}
    assert not answer.replaces
    assert not answer.deleteBeforeReplace


def test_a_preview_touches_nothing_and_promises_an_empty_skew(
    plugin: Any, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "stacks.provider.narrator")
    world.deviations = DEVIATES
    created = plugin.Create(stubs.provider.CreateRequest(urn=URN, properties=structs.struct(INPUTS), preview=True))
    updated = update(plugin, preview=True)
    for answer in (created, updated):
        assert structs.plain(answer.properties) == {"lock": "a" * 64, "skew": {}}
        assert answer.refresh_before_update
    # Nothing was read before the engine creates, so the preview of a new pool reads; an update was refreshed before.
    assert (world.acted, world.sweeps) == ([], 1)
    assert "p-2: driver@running: 2.0 (pinned 1.0); firmware.gpu[gpu0]@running: 97 (pinned 1.0)" in caplog.text


def test_create_acts_and_keeps_what_stays_out_of_step(plugin: Any, world: World) -> None:
    world.answer = acts.Acted({"p-2": {"driver@running": "2.0"}}, (), ("p-2: forbidden: reboot",))
    answer = plugin.Create(stubs.provider.CreateRequest(urn=URN, properties=structs.struct(INPUTS)))
    assert answer.id == "toy/p"
    assert structs.plain(answer.properties)["skew"] == {"p-2": {"driver@running": "2.0"}}
    assert world.acted == ["p"]


def test_the_cluster_to_join_is_handed_on_and_its_path_is_no_change(plugin: Any, world: World) -> None:
    declared = structs.struct({**INPUTS, "kubeconfig": "/etc/cluster"})
    plugin.Create(stubs.provider.CreateRequest(urn=URN, properties=declared))
    update(plugin)
    assert world.kubeconfigs == [Path("/etc/cluster"), None]
    assert diff(plugin, {**INPUTS, "kubeconfig": "/moved"}).changes == stubs.provider.DiffResponse.DIFF_NONE


def test_an_act_that_failed_fails_the_resource_and_keeps_what_is_known(plugin: Any, world: World) -> None:
    world.answer = acts.Acted({"p-2": {"admission": "failed: join"}}, ("p-2: failed: join",), ())
    with pytest.raises(grpc.RpcError) as caught:
        update(plugin)
    failure = init_failure(caught.value)
    assert failure.id == "toy/p"
    assert list(failure.reasons) == ["p-2: failed: join"]
    assert structs.plain(failure.properties)["skew"] == {"p-2": {"admission": "failed: join"}}
    assert structs.plain(failure.inputs) == INPUTS
    assert failure.refresh_before_update


def test_a_refusal_fails_the_call_with_its_remedy(plugin: Any, world: World) -> None:
    world.refusal = errors.RefusedError("the pool loses 3 nodes", hint="--shrink 3")
    with pytest.raises(grpc.RpcError) as caught:
        update(plugin)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "--shrink 3" in caught.value.details()


def test_delete_forgets_and_neither_reads_nor_acts(plugin: Any, world: World) -> None:
    plugin.Delete(stubs.provider.DeleteRequest(id="toy/p", urn=URN, properties=structs.struct(INPUTS)))
    assert (world.acted, world.sweeps) == ([], 0)


def test_check_refuses_what_would_be_refused_before_anything_is_planned(plugin: Any, world: World) -> None:
    world.forbidden = errors.RefusedError("pool p loses 3 of 5 nodes", hint="--shrink 3")
    answer = plugin.Check(stubs.provider.CheckRequest(urn=URN, news=structs.struct(INPUTS)))
    assert "--shrink 3" in answer.failures[0].reason


def test_check_hands_the_inputs_back(plugin: Any) -> None:
    answer = plugin.Check(stubs.provider.CheckRequest(urn=URN, news=structs.struct(INPUTS)))
    assert structs.plain(answer.inputs) == INPUTS
    assert not answer.failures


def test_after_a_cancel_an_act_ends_at_its_next_line(plugin: Any, world: World) -> None:
    plugin.Cancel(empty_pb2.Empty())
    with pytest.raises(grpc.RpcError) as caught:
        update(plugin)
    assert caught.value.code() is grpc.StatusCode.CANCELLED
    assert world.acted == ["p"]
