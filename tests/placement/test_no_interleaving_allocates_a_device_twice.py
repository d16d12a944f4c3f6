"""Many planners, stale views, deaths at every await: seeds name the interleavings, so a failure repeats."""

from __future__ import annotations

import dataclasses
import os

import pytest

from placement.ledger import reservations
from placement.ledger.records import NodeGrant, Record, Refusal
from placement.simulate import histories, interleavings

PLANNERS = (1, 2, 4, 8)


def _play(seeds: range) -> interleavings.Outcome:
    total = interleavings.Outcome()
    for seed in seeds:
        try:
            outcome = interleavings.run(interleavings.Scenario(planners=PLANNERS[seed % 4]), seed)
        except AssertionError as violation:
            raise AssertionError(f"seed {seed}: {violation}") from violation
        total.placed += outcome.placed
        total.conflicts += outcome.conflicts
        total.crashes += outcome.crashes
    return total


def test_a_thousand_interleavings_hold_every_device_once_and_leak_nothing() -> None:
    total = _play(range(1000))
    # The scenarios must bite: work gets placed, stale views are refused, planners die.
    assert total.placed > 3000
    assert total.conflicts > 500
    assert total.crashes > 500


@pytest.mark.slow
def test_ten_thousand_interleavings_hold_every_device_once_and_leak_nothing() -> None:
    start = int(os.environ.get("LOCKSTEP_SEED", "1000"))
    assert _play(range(start, start + 10_000)).placed > 30_000


@pytest.mark.slow
def test_a_planner_may_die_often() -> None:
    for seed in range(500):
        interleavings.run(interleavings.Scenario(planners=4, crash=0.08), seed)


class _NoCommitCheck(reservations.Ledger):
    """Plans with the predicate and commits without it: what kube-scheduler, Kueue and KAI were reported for."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._committing = False

    def _reserve(self, record: Record, *, hold: object, also: object) -> Record:
        self._committing = True
        try:
            return super()._reserve(record, hold=hold, also=also)  # type: ignore[arg-type]
        finally:
            self._committing = False

    def predicate(self, record: Record, wanted: tuple[NodeGrant, ...]) -> Refusal | None:  # type: ignore[override]
        return None if self._committing else super().predicate(record, wanted)


class _NoTenants(reservations.Ledger):
    """Commits on a weaker predicate than it decides on: devices only."""

    def predicate(self, record: Record, wanted: tuple[NodeGrant, ...]) -> Refusal | None:  # type: ignore[override]
        alike = [_shared(node) for node in wanted]
        others = {
            name: dataclasses.replace(hold, nodes=tuple(_shared(node) for node in hold.nodes))
            for name, hold in record.holds.items()
        }
        return super().predicate(dataclasses.replace(record, holds=others), alike)


def _shared(node: NodeGrant) -> NodeGrant:
    return dataclasses.replace(node, exclusive=False, sole=False, channel=False)


class _NoEpochs(reservations.Ledger):
    """Ends a hold at its deadline without telling anybody, and binds whatever is there."""

    async def confirm(self, claim: str, epochs: object) -> None:
        return


def _first_violation(ledger: type[reservations.Ledger], seeds: range) -> int | None:
    for seed in seeds:
        try:
            interleavings.run(interleavings.Scenario(planners=4, ledger=ledger), seed)
        except (interleavings.Violation, histories.NotLinearizable):
            return seed
    return None


def test_without_the_commit_check_the_suite_fails_within_fifty_runs() -> None:
    assert _first_violation(_NoCommitCheck, range(50)) is not None


def test_a_commit_that_asks_for_devices_only_fails_within_fifty_runs() -> None:
    assert _first_violation(_NoTenants, range(50)) is not None


def test_without_binding_by_epoch_the_suite_fails_within_a_hundred_runs() -> None:
    assert _first_violation(_NoEpochs, range(100)) is not None
