"""A boot is proved by another boot id; a silent machine is waited for, one that is off is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from bringup import reboots
from bringup.transport.base import Failure, FailureKind, Outcome, Patience, Target
from lockstep.base.names import NodeName

SILENT = Failure(FailureKind.REFUSED, "nothing listens")


class Boots:
    """A transport whose nodes answer with one boot id after another, the last one for ever; None is silence."""

    def __init__(self, answers: Mapping[str, Sequence[str | None]]) -> None:
        self._answers = {node: list(ids) for node, ids in answers.items()}
        self.asked = 0

    def run(self, target: Target, script: str, patience: Patience) -> Outcome | Failure:
        self.asked += 1
        ids = self._answers[target.node]
        boot_id = ids.pop(0) if len(ids) > 1 else ids[0]
        return SILENT if boot_id is None else Outcome(f"{boot_id}\n".encode(), b"", 0, 0.01)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reboots, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(reboots, "OFF_SECONDS", 0.02)


def targets(*names: str) -> dict[NodeName, Target]:
    return {NodeName(name): Target(NodeName(name), "127.0.0.1", 22, "root") for name in names}


def before(*names: str) -> dict[NodeName, str | None]:
    return {NodeName(name): "old" for name in names}


def test_going_down_silent_and_coming_back_is_a_boot() -> None:
    boots = Boots({"a": ["old", None, None, "new"], "b": ["new"]})
    assert reboots.wait_for_boot(targets("a", "b"), before("a", "b"), boots) == {}


def test_the_same_boot_id_proves_that_nothing_was_rebooted() -> None:
    failed = reboots.wait_for_boot(targets("a"), before("a"), Boots({"a": ["old"]}), seconds=0.1)
    assert "still runs the boot from before" in failed[NodeName("a")]


def test_a_node_that_stays_silent_fails_and_the_others_do_not() -> None:
    boots = Boots({"a": [None], "b": [None, "new"]})
    failed = reboots.wait_for_boot(targets("a", "b"), before("a", "b"), boots, seconds=0.2)
    assert set(failed) == {"a"}
    assert "does not answer" in failed[NodeName("a")]


def test_a_machine_that_is_off_is_not_waited_for() -> None:
    failed = reboots.wait_for_boot(
        targets("a"), before("a"), Boots({"a": [None]}), seconds=600, is_off=lambda node: node == "a"
    )
    assert failed == {"a": "is powered off"}


def test_without_the_old_boot_id_nothing_is_proved() -> None:
    boots = Boots({"a": ["new"]})
    failed = reboots.wait_for_boot(targets("a"), {NodeName("a"): None}, boots)
    assert "was not known" in failed[NodeName("a")]
    assert boots.asked == 0


def test_answers_are_waited_for_and_machines_that_are_off_are_not() -> None:
    boots = Boots({"a": [None, None, "x"], "c": [None]})
    found = reboots.wait_for_answer(targets("a", "c"), boots, seconds=600, is_off=lambda node: node == "c")
    assert found == {"a": "x"}


def test_a_node_that_never_answers_is_left_out_at_the_end_of_its_time() -> None:
    assert reboots.wait_for_answer(targets("b"), Boots({"b": [None]}), seconds=0.05) == {}


def test_a_reboot_that_cannot_be_set_off_is_said() -> None:
    class Deaf(Boots):
        def run(self, target: Target, script: str, patience: Patience) -> Outcome | Failure:
            return SILENT if target.node == "a" else Outcome(b"", b"shutdown: not found\n", 127, 0.01)

    failed = reboots.set_off(targets("a", "b"), {name: "old" for name in targets("a", "b")}, Deaf({}))
    assert failed["a"] == "refused: nothing listens"  # type: ignore[index]
    assert "shutdown: not found" in failed["b"]  # type: ignore[index]


def test_a_node_that_was_slow_to_answer_is_told_again() -> None:
    class Slow(Boots):
        def run(self, target: Target, script: str, patience: Patience) -> Outcome | Failure:
            self.asked += 1
            return SILENT if self.asked < 3 else Outcome(b"", b"", 0, 0.01)

    assert reboots.set_off(targets("a"), {NodeName("a"): "old"}, Slow({})) == {}
