"""Consent: shrink, generations, policies that are not supported, fencing limits, words of one run."""

from __future__ import annotations

import dataclasses

import pytest

from bringup import consent, planning, words
from inventory import load as inventory_load
from inventory.model import Disruption, Kind, Node, NodeState, Pool
from lockstep.base import errors, quantities
from lockstep.base.names import DomainName, NodeName, PinsetName, PoolName, Slot
from pinsets.facts import NodeFacts


def node(name: str, domain: str = "r1", generation: int = 1) -> Node:
    return Node(
        NodeName(name), PoolName("p"), Slot(f"s-{name}"), "127.0.0.1", DomainName(domain), generation=generation
    )


def pool(count: int = 4, per_domain: int = 4, **policy: object) -> Pool:
    nodes = tuple(node(f"n{number}", f"r{number // per_domain}") for number in range(count))
    sku = inventory_load.sku("lab-gb200")
    return Pool(PoolName("p"), sku, "debian-12-amd64", PinsetName("x"), (), Disruption.model_validate(policy), nodes)


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("before", "now"),
    [(100, 95), (100, 99), (3, 2), (10, 10), (10, 12)],
    ids=["exactly 5 %", "one of many", "one of few", "none", "more"],
)
def test_a_pool_may_lose_few_nodes_without_a_word(before: int, now: int) -> None:
    consent.check_shrink("p", names(before), names(now), words.Words())


@pytest.mark.parametrize(("before", "now"), [(100, 94), (3, 1), (8, 0)])
def test_a_pool_that_loses_many_nodes_is_refused_until_the_number_is_repeated(before: int, now: int) -> None:
    gone = before - now
    for given in (None, gone - 1, gone + 1):
        with pytest.raises(errors.RefusedError) as refusal:
            consent.check_shrink("p", names(before), names(now), words.parse(shrink=given or None))
        assert f"--shrink {gone}" in (refusal.value.hint or "")
    consent.check_shrink("p", names(before), names(now), words.parse(shrink=gone))


def test_a_pool_never_seen_cannot_shrink() -> None:
    consent.check_shrink("p", None, [], words.Words())


def test_a_generation_the_journal_knows_lower_asks_for_replace() -> None:
    with pytest.raises(errors.RefusedError) as refusal:
        consent.check_generations([node("n1", generation=2)], {"s-n1": 1})
    assert refusal.value.exit_code is errors.ExitCode.REFUSED
    assert "run lockstep replace" in (refusal.value.hint or "")


def test_a_fleet_file_behind_the_journal_is_refused_with_what_to_write() -> None:
    with pytest.raises(errors.RefusedError, match="stands in slot") as refusal:
        consent.check_generations([node("n1", generation=1)], {"s-n1": 3})
    assert "generation: 3" in (refusal.value.hint or "")


def test_a_generation_never_seen_is_only_recorded() -> None:
    consent.check_generations([node("n1", generation=7)], {})


@pytest.mark.parametrize("policy", [{"plan": "required"}, {"window": "Sat 02:00-06:00"}])
def test_a_policy_that_cannot_be_honoured_yet_is_refused(policy: dict[str, str]) -> None:
    with pytest.raises(errors.RefusedError, match="not supported yet"):
        consent.check_policy(pool(**policy), words.Words())


def test_an_approved_plan_is_refused_rather_than_ignored() -> None:
    with pytest.raises(errors.RefusedError, match="not supported yet"):
        consent.check_policy(pool(), words.parse(plan="abc"))


@pytest.mark.parametrize(
    ("count", "per_domain", "limit"), [(8, 4, 4), (3, 1, 1), (1000, 1, 20), (1000, 72, 72), (51, 1, 2)]
)
def test_one_run_fences_a_domain_or_two_percent_whichever_is_larger(count: int, per_domain: int, limit: int) -> None:
    assert consent.fence_limit(pool(count, per_domain)) == limit


def test_whole_domains_are_fenced_before_another_is_begun() -> None:
    candidates = [node("a1", "r1"), node("b1", "r2"), node("a2", "r1"), node("b2", "r2")]
    chosen, left = planning.to_fence(candidates, 3)
    assert [one.name for one in chosen] == ["a1", "a2", "b1"]
    assert [one.name for one in left] == ["b2"]


def test_the_budget_rounds_up_and_is_never_below_one() -> None:
    assert [quantities.Share(10.0, None).nodes_of(total) for total in (1, 5, 10, 11, 100)] == [1, 1, 1, 2, 10]


def test_hosts_of_rpms_are_refused_before_anything_is_touched() -> None:
    rocky = dataclasses.replace(pool(), os="rocky-9-amd64")
    with pytest.raises(errors.RefusedError, match="installing packages on rocky-9-amd64"):
        consent.check_policy(rocky, words.Words())


def test_policy_and_words_add_up() -> None:
    said = words.parse(allow=["reboot", "reimage=n2"])
    given = pool(allow=["install"])
    assert consent.allowed_kinds(given, said, NodeName("n1")) == {Kind.INSTALL, Kind.REBOOT}
    assert consent.allowed_kinds(given, said, NodeName("n2")) == {Kind.INSTALL, Kind.REBOOT, Kind.REIMAGE}


def test_words_come_from_the_environment_too() -> None:
    said = words.from_environment(
        {
            "LOCKSTEP_ALLOW": "install, reboot=n1",
            "LOCKSTEP_SHRINK": "3",
            "LOCKSTEP_ACCEPT": "a b",
            "LOCKSTEP_FACTS": "ssh",
        }
    )
    assert said == words.Words(
        frozenset({Kind.INSTALL}), frozenset({(Kind.REBOOT, NodeName("n1"))}), frozenset({"a", "b"}), 3
    )
    assert words.from_environment({}) == words.Words()


@pytest.mark.parametrize("text", ["rebot", "reboot=", "=n1", "*"])
def test_a_word_that_is_no_kind_is_refused_with_the_list(text: str) -> None:
    with pytest.raises(errors.InputError) as refusal:
        words.parse(allow=[text])
    assert refusal.value.hint


@pytest.mark.parametrize("text", ["many", "-1", "0"])
def test_a_shrink_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(errors.InputError):
        words.from_environment({"LOCKSTEP_SHRINK": text})


def test_a_declared_state_is_never_overruled_by_facts() -> None:
    held = dataclasses.replace(node("n1"), state=NodeState.HELD, holder="ops")
    judged = consent.standing(held, None, consent.Registration.NONE, admitted_before=False)
    assert judged.standing is consent.Standing.OUT_OF_SERVICE
    assert judged.why == "declared held by ops"


@pytest.mark.parametrize(
    "registration", [consent.Registration.ADMITTED, consent.Registration.UNKNOWN], ids=["admitted", "unknown"]
)
def test_a_node_the_cluster_vouches_for_or_cannot_tell_of_is_not_ours(registration: consent.Registration) -> None:
    facts = NodeFacts(NodeName("n1"), 1.0, boot_id="b", serial="S", busy=())
    new = dataclasses.replace(node("n1"), state=NodeState.NEW)
    judged = consent.standing(new, facts, registration, admitted_before=False)
    assert judged.standing is consent.Standing.ADMITTED
    assert consent.standing(new, facts, consent.Registration.NONE, admitted_before=False).standing is (
        consent.Standing.OURS
    )
