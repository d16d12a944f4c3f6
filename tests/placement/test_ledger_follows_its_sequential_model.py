"""Hypothesis plays the ledger against a model of one line per device: free, held or bound, draining."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from placement.ledger import reservations, stores
from placement.ledger.records import Epochs, Grant, NodeGrant, State

DEVICES = ("n1/gpu0", "n1/gpu1", "m1/gpu0", "m1/gpu1")
CLAIMS = ("a", "b", "c")
TTL = 10.0


def _domain(device: str) -> str:
    return "r1" if device.startswith("n1") else "r2"


class _Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store = stores.Memory()
        self.ledger = reservations.Ledger(self.store, lambda: self.now)
        self.model: dict[str, tuple[State, frozenset[str], float]] = {}
        """Claim → state, devices, deadline."""
        self.proofs: dict[str, list[Epochs]] = {claim: [] for claim in CLAIMS}
        """Every epoch ever given for a claim; the last one is the current one if the claim is in the model."""

    def _do(self, call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(call)

    def _parts(self, devices: frozenset[str]) -> dict[str, tuple[NodeGrant, ...]]:
        parts: dict[str, tuple[NodeGrant, ...]] = {}
        for domain in sorted({_domain(device) for device in devices}):
            here = sorted(device for device in devices if _domain(device) == domain)
            parts[domain] = (NodeGrant(here[0].split("/")[0], tuple(Grant(device) for device in here)),)
        return parts

    def _occupied(self) -> set[str]:
        return {device for _, devices, _ in self.model.values() for device in devices}

    @rule(claim=st.sampled_from(CLAIMS), devices=st.frozensets(st.sampled_from(DEVICES), min_size=1))
    def reserve(self, claim: str, devices: frozenset[str]) -> None:
        if claim in self.model and not {*map(_domain, devices)} & {*map(_domain, self.model[claim][1])}:
            return  # a claim is one reservation: a record cannot see what the others hold for it
        free = claim not in self.model and not devices & self._occupied()
        try:
            epochs = self._do(self.ledger.reserve(claim, self._parts(devices), "p", seconds=TTL))
        except reservations.NotFreeError:
            assert not free
        else:
            assert free
            self.model[claim] = (State.HELD, devices, self.now + TTL)
            self.proofs[claim].append(epochs)

    @precondition(lambda self: any(self.proofs.values()))
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        claim, epochs, current = self._proof(data)
        allowed = current and claim in self.model and self.model[claim][0] is not State.DRAINING
        try:
            self._do(self.ledger.confirm(claim, epochs))
        except reservations.StaleEpochError:
            assert not allowed
        else:
            assert allowed
            self.model[claim] = (State.BOUND, *self.model[claim][1:])

    @precondition(lambda self: any(self.proofs.values()))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        claim, epochs, current = self._proof(data)
        try:
            self._do(self.ledger.release(claim, epochs))
        except reservations.StaleEpochError:
            assert not current
            assert claim in self.model
            return
        if current and claim in self.model:
            state, devices, deadline = self.model[claim]
            if state is State.HELD:
                del self.model[claim]
            else:
                self.model[claim] = (State.DRAINING, devices, deadline)

    @rule(claim=st.sampled_from(CLAIMS), node=st.sampled_from(("n1", "m1")))
    def vacate(self, claim: str, node: str) -> None:
        domain = "r1" if node == "n1" else "r2"
        self._do(self.ledger.vacate(domain, claim, node))
        state, devices, deadline = self.model.get(claim, (None, frozenset(), 0.0))
        if state is State.DRAINING:
            left = frozenset(device for device in devices if not device.startswith(f"{node}/"))
            self.model[claim] = (State.DRAINING, left, deadline)
            if not left:
                del self.model[claim]
                for each in ("r1", "r2"):
                    self._do(self.ledger.expire(each))

    @rule(seconds=st.floats(0, 2 * TTL))
    def pass_time_and_expire(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(2):
            for domain in ("r1", "r2"):
                self._do(self.ledger.expire(domain))
        for claim, (state, _, deadline) in list(self.model.items()):
            if state is State.HELD and self.now >= deadline:
                del self.model[claim]

    @rule()
    def restart_and_rebuild(self) -> None:
        bound = [
            reservations.Bound(claim, self._parts(devices))
            for claim, (state, devices, _) in self.model.items()
            if state is State.BOUND
        ]
        self.ledger = reservations.Ledger(self.store, lambda: self.now)
        done = self._do(self.ledger.rebuild(bound))
        assert done.conflicts == ()

    def _proof(self, data: st.DataObject) -> tuple[str, Epochs, bool]:
        claim = data.draw(st.sampled_from([claim for claim, given in self.proofs.items() if given]))
        epochs = data.draw(st.sampled_from(self.proofs[claim]))
        return claim, epochs, epochs is self.proofs[claim][-1] and claim in self.model

    @invariant()
    def ledger_equals_model(self) -> None:
        found: dict[str, tuple[set[State], set[str]]] = {}
        for domain in self._do(self.store.domains()):
            record, _ = self._do(self.store.read(domain))
            for claim, hold in record.holds.items():
                states, devices = found.setdefault(claim, (set(), set()))
                states.add(hold.state)
                devices |= {grant.device for node in hold.nodes for grant in node.grants}
        wanted = {claim: ({state}, set(devices)) for claim, (state, devices, _) in self.model.items()}
        assert found == wanted


TestLedger = _Machine.TestCase
TestLedger.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
