"""Sweeps: bad hosts end with their class and hold nobody up; partial results, second pass, interrupt."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from bringup import sweep
from bringup.transport.base import Failure, FailureKind, Outcome, Patience, Target
from bringup.transport.fake import Answer, Fake
from bringup.transport.ssh import Ssh
from lockstep.base.names import NodeName
from pinsets import components
from tests.bringup import answers, servers
from tests.bringup.servers import BadHosts, Keys, Sshd

QUICK = Patience(connect_seconds=1, login_seconds=3, script_seconds=6, command_seconds=5, host_seconds=8)
_FIRST_SECONDS = 1.0
DEAD = Failure(FailureKind.REFUSED, "nothing listens on port 22")


def _requests(*names: str) -> list[sweep.Request]:
    return [sweep.Request(Target(NodeName(name), "127.0.0.1", 22, "root"), answers.sku()) for name in names]


def _read(fake: Fake, *names: str, **options: object) -> sweep.Swept:
    return sweep.read(_requests(*names), fake, components.load(), **options)  # type: ignore[arg-type]


def test_forty_odd_hosts_first_cost_no_good_one(sshd: Sshd, bad_hosts: BadHosts, keys: Keys, tmp_path: Path) -> None:
    """The eight sorts, five of each, before twenty good hosts, ten at a time."""
    with contextlib.ExitStack() as stack:
        (tmp_path / "hung").mkdir()
        (tmp_path / "slow").mkdir()
        hung = stack.enter_context(servers.sshd(keys, tmp_path / "hung", "ForceCommand sleep 60"))
        slow = stack.enter_context(servers.sshd(keys, tmp_path / "slow", "ForceCommand sleep 1; exec sh -s"))
        sorts = {
            name: [sshd.target(f"{name}-{index}", *address[:1], port=address[1]) for index in range(5)]
            for name, address in vars(bad_hosts).items()
            if not name.startswith("_")
        }
        sorts["hung-shell"] = [hung.target(f"hung-shell-{index}") for index in range(5)]
        sorts["slow"] = [slow.target(f"slow-{index}") for index in range(5)]
        assert len(sorts) == 8
        odd = [target for targets in sorts.values() for target in targets]
        good = [sshd.target(f"good-{index:02}") for index in range(20)]
        swept = sweep.read(
            [sweep.Request(target) for target in [*odd, *good]],
            Ssh(),
            {},
            patience=QUICK,
            concurrency=10,
            shuffle=lambda order: None,
        )
    assert len(swept.snapshot.nodes) == 60
    answered = {name.rpartition("-")[0] for name, facts in swept.snapshot.nodes.items() if facts.unreachable is None}
    assert answered == {"good", "slow"}
    assert all(swept.snapshot.nodes[target.node].boot_id for target in good)
    kinds = {name.rpartition("-")[0]: failure.kind for name, failure in swept.failures.items()}
    assert kinds == {
        "no_banner": FailureKind.NO_BANNER,
        "line_per_second": FailureKind.NO_BANNER,
        "banner_then_silence": FailureKind.HUNG,
        "hung-shell": FailureKind.HUNG,
        "accepts_and_closes": FailureKind.NO_BANNER,
        "closed_port": FailureKind.REFUSED,
        "black_hole": FailureKind.NO_ROUTE,
    }
    patient = max(failure.seconds for failure in swept.failures.values())
    assert patient < 2 * QUICK.host_seconds + 1, "no host may outlive the doubled deadline of the second pass"


def test_a_node_that_answers_when_tried_again_is_told_apart() -> None:
    fake = Fake({"a": answers.answer(), "b": [DEAD, answers.answer()], "c": [DEAD, DEAD]})
    swept = _read(fake, "a", "b", "c")
    assert swept.second_pass == ("b",)
    assert set(swept.failures) == {"c"}
    assert swept.snapshot.nodes[NodeName("b")].unreachable is None
    assert swept.snapshot.nodes[NodeName("c")].unreachable == "refused: nothing listens on port 22"
    patience = {target.node: given.host_seconds for target, _, given in fake.calls}
    assert patience["b"] == 2 * patience["a"]


def test_a_refused_host_key_is_not_tried_again() -> None:
    fake = Fake({"a": Failure(FailureKind.HOST_KEY_CHANGED, "offers another")})
    swept = _read(fake, "a")
    assert len(fake.calls) == 1
    assert set(swept.failures) == {"a"}


def test_half_an_answer_is_tried_again_and_kept_when_that_fails() -> None:
    half = answers.answer().split(b'{"id": "smi"')[0]
    fake = Fake({"a": [Outcome(half, b"", None, 30.0), DEAD]})
    swept = _read(fake, "a")
    facts = swept.snapshot.nodes[NodeName("a")]
    assert len(fake.calls) == 2
    assert facts.unreachable is None
    assert facts.boot_id
    assert "gpus" not in facts.attributes
    assert not swept.failures


def test_an_answer_that_is_not_the_scripts_is_bad_output() -> None:
    fake = Fake({"a": Outcome(b"This account is disabled.\n", b"rbash: sh: restricted\n", 1, 0.1)})
    swept = _read(fake, "a")
    failure = swept.failures[NodeName("a")]
    assert failure.kind is FailureKind.BAD_OUTPUT
    assert "This account is disabled" in failure.reason
    assert "restricted" in failure.reason


def test_an_interrupt_keeps_what_is_known() -> None:
    def stop(progress: sweep.Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    fake = Fake({f"n{index}": answers.answer() for index in range(20)})
    swept = _read(fake, *(f"n{index}" for index in range(20)), progress=stop, concurrency=1)
    assert swept.interrupted
    assert len(swept.snapshot.nodes) == 3
    assert fake.closed


def test_progress_counts_every_node_and_names_failures() -> None:
    seen: list[sweep.Progress] = []
    fake = Fake({"a": answers.answer(), "b": [DEAD, answers.answer()]})
    _read(fake, "a", "b", progress=seen.append)
    assert [(one.done, one.total, one.second_pass) for one in seen] == [(1, 2, False), (2, 2, False), (1, 1, True)]
    assert [one.node for one in seen if one.failure] == ["b"]


class _Silent(Fake):
    """Hosts called bad-… say nothing in a first pass until they are cut, and are dead in the second."""

    def __init__(self, names: list[str]) -> None:
        super().__init__({name: answers.answer() for name in names if not name.startswith("bad")})
        self._given_up = {name: threading.Event() for name in names if name.startswith("bad")}

    def run(self, target: Target, script: str, patience: Patience) -> Outcome | Failure:
        if target.node in self._given_up and patience.host_seconds == _FIRST_SECONDS:
            self._given_up[target.node].wait()
        return super().run(target, script, patience)

    def cut(self, node: NodeName) -> None:
        super().cut(node)
        self._given_up[node].set()


def _passes(names: list[str], concurrency: int) -> tuple[_Silent, sweep.Swept, list[sweep.Progress], list[NodeName]]:
    fake, seen = _Silent(names), list[sweep.Progress]()
    patience = Patience(0.2, 0.5, 0.5, 0.5, _FIRST_SECONDS)
    swept = _read(
        fake, *names, patience=patience, concurrency=concurrency, progress=seen.append, shuffle=lambda order: None
    )
    assert sorted(one.node for one in seen if not one.second_pass) == sorted(names)
    return fake, swept, seen, [one.node for one in seen if one.second_pass]


def test_bad_hosts_do_not_outlast_the_deadline_of_the_first_pass() -> None:
    """They would never end by themselves: that this test ends shows that the pass ends them."""
    names = [f"bad-{index}" for index in range(4)] + [f"good-{index:02}" for index in range(20)]
    fake, swept, seen, again = _passes(names, concurrency=6)
    assert sorted(fake.cuts) == names[:4]
    assert sorted(again) == names[:4], "the second pass is for failures only"
    assert sorted(swept.failures) == names[:4]
    assert not swept.second_pass
    first = [one for one in seen if not one.second_pass]
    assert [one.node.startswith("bad") for one in first] == [False] * 20 + [True] * 4
    assert all("when the first pass ended" in str(one.failure) for one in first[20:])


def test_bad_hosts_that_fill_every_slot_cost_no_good_host() -> None:
    names = [f"bad-{index}" for index in range(6)] + [f"good-{index:02}" for index in range(20)]
    fake, swept, seen, _ = _passes(names, concurrency=3)
    assert sorted(fake.cuts) == names[:3]
    unreached = [one.node for one in seen if "not reached" in str(one.failure)]
    assert unreached == names[3:]
    assert sorted(swept.failures) == names[:6]
    assert sorted(swept.second_pass) == names[6:]


def test_the_first_pass_goes_on_for_good_hosts_alone() -> None:
    pace = sweep.Pace(deadline=30, connect=5)
    assert pace.given_up(began=0) == pace.given_up(began=29) == 30, "nobody has answered: all of it ends together"
    assert not pace.starts(30)
    for now in (12, 14, 27):
        pace.answered(now, seconds=12)
    assert pace.starts(300)
    assert pace.given_up(began=1) == 30, "until the deadline nobody is given up"
    assert pace.given_up(began=25) == 37, "as long as the slowest good host took"
    pace.answered(28, seconds=25)
    assert pace.given_up(began=25) == 41, "no longer than good ones go on to answer: 13 s was the longest wait"
    pace.answered(40, seconds=15)
    assert pace.given_up(began=25) == 50, "and longer when they do"
    quick = sweep.Pace(deadline=30, connect=5, slowest=0.1, last=99, lull=0.1)
    assert quick.given_up(began=100) == 105, "and not less than a connect"


def test_the_order_is_shuffled() -> None:
    names = [f"n{index}" for index in range(200)]
    fake = Fake(dict.fromkeys(names, DEAD))
    _read(fake, *names, concurrency=1)
    assert [target.node for target, _, _ in fake.calls[:200]] != names


def test_equal_nodes_share_their_facts() -> None:
    given: dict[str, Answer | list[Answer]] = {"a": answers.answer("1"), "b": answers.answer("2")}
    swept = _read(Fake(given), "a", "b")
    a, b = swept.snapshot.nodes.values()
    assert a.facts is b.facts
    assert (a.serial, b.serial) == ("1", "2")
