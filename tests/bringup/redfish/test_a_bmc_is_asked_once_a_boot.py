"""While one run reads a node again and again, its BMC is asked once for each boot; many BMCs are asked at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bringup import further, reading
from bringup.redfish import memory, source
from bringup.redfish.bmc import Answer, Failure, Way
from bringup.transport.fake import Fake
from inventory import load
from inventory.model import Bmc, Fleet
from lab import bmc as lab_bmc
from lab.bmc import Habit
from lockstep.base import settings
from lockstep.base.credentials import Reference
from lockstep.base.names import NodeName
from pinsets.facts import Coordinate, NodeFacts
from tests.bringup import answers

from .test_bmcs_are_read import GPUS, tree
from .test_what_a_bmcs_inventory_means import SKU, node

BOOT, NEXT = "4ced1d57-7882-49fa-b1cd-fbad5f1d3e41", "11111111-7882-49fa-b1cd-fbad5f1d3e41"
FIRMWARE = Coordinate.parse("firmware.bmc@running")


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMC_LOGIN", "admin:right")
    further._memory.cache_clear()


@pytest.fixture
def asked() -> list[str]:
    """Paths that the BMC was asked for."""
    return []


@pytest.fixture
def fleet(tmp_path: Path, asked: list[str]) -> Iterator[Fleet]:
    """One node whose BMC the emulator is."""
    members = (*GPUS, {"Id": "FW_BMC_0", "Version": "25.08-9"})
    folder = lab_bmc.unfold(tree(*members), tmp_path / "tree")
    with lab_bmc.serving(folder, login="admin:right", seen=asked) as url:
        yield _fleet(tmp_path, url)


def _fleet(folder: Path, url: str) -> Fleet:
    path = answers.fleet_file(folder, {"a": f", bmc: {{redfish: '{url}', credentials: {{env: BMC_LOGIN}}}}"})
    path.write_text(path.read_text().replace("    nodes:\n", "    sources: [ssh, redfish]\n    nodes:\n"))
    return load.fleet(str(path), settings.Settings(None, folder / "state", folder / "cache", folder / "labs"))


def _read(fleet: Fleet, boot: str = BOOT) -> NodeFacts:
    answer = answers.answer("1", boot=boot)
    return reading.read_nodes(fleet, ["a"], transport=Fake({"a": answer})).nodes[NodeName("a")]


def test_a_node_that_is_read_three_times_costs_its_bmc_one_reading(fleet: Fleet, asked: list[str]) -> None:
    first = _read(fleet)
    count = len(asked)
    assert str(first.observation(FIRMWARE)) == "25.08-9"
    assert _read(fleet).observation(FIRMWARE) == _read(fleet).observation(FIRMWARE) == first.observation(FIRMWARE)
    assert len(asked) == count > 5


def test_after_a_boot_the_bmc_is_asked_again(fleet: Fleet, asked: list[str], tmp_path: Path) -> None:
    """A reboot and a power cycle of ours, after which firmware that somebody wrote runs."""
    assert str(_read(fleet).observation(FIRMWARE)) == "25.08-9"
    count = len(asked)
    place = tmp_path / "tree" / "UpdateService" / "FirmwareInventory" / "FW_BMC_0" / "index.json"
    place.write_text(place.read_text().replace("25.08-9", "25.08-12"))
    assert str(_read(fleet).observation(FIRMWARE)) == "25.08-9"
    assert str(_read(fleet, NEXT).observation(FIRMWARE)) == "25.08-12"
    assert len(asked) > count


def test_an_audit_remembers_nothing(fleet: Fleet, asked: list[str], tmp_path: Path) -> None:
    given = settings.Settings(None, tmp_path / "state", tmp_path / "cache", tmp_path / "labs")
    counts = []
    for _ in range(2):
        reading.read_fleet(fleet, given, transport=Fake({"a": answers.answer("1")}), store=False)
        counts.append(len(asked))
    assert counts[1] == 2 * counts[0] > 0


def test_a_reading_with_gaps_is_not_kept(tmp_path: Path, asked: list[str]) -> None:
    folder = lab_bmc.unfold(tree(*GPUS), tmp_path / "tree")
    with lab_bmc.serving(folder, habit=Habit.BROKEN_MEMBER, seen=asked) as url:
        fleet = _fleet(tmp_path, url)
        _read(fleet)
        count = len(asked)
        _read(fleet)
    assert len(asked) == 2 * count


def test_what_is_kept_grows_old_and_is_of_one_address_and_one_boot() -> None:
    now = [0.0]
    kept = memory.Memory(600, clock=lambda: now[0])
    at = Bmc(redfish="http://127.0.0.1:1", credentials=Reference(env="BMC_LOGIN"))
    one, facts = node(bmc=at), NodeFacts(NodeName("n"), 1.0)
    kept.keep(one, BOOT, facts)
    assert kept.recall(one, BOOT) is facts
    assert kept.recall(one, NEXT) is None
    assert kept.recall(one, None) is None, "of a host that is silent nothing is taken for granted"
    moved = Bmc(redfish="http://127.0.0.1:2", credentials=Reference(env="BMC_LOGIN"))
    assert kept.recall(node(bmc=moved), BOOT) is None
    now[0] = 601
    assert kept.recall(one, BOOT) is None
    kept.keep(one, BOOT, facts)
    kept.keep(one, BOOT, NodeFacts(NodeName("n"), 1.0, unreachable="BMC timeout"))
    assert kept.recall(one, BOOT) is None


def test_many_bmcs_are_asked_at_once_up_to_the_limit_and_none_twice_at_a_time() -> None:
    guard, busy, most, per_bmc = threading.Lock(), set[str](), [0], list[str]()

    def slow(way: Way, until: float) -> Answer | Failure:
        with guard:
            assert way.url not in busy
            busy.add(way.url)
            per_bmc.append(way.url)
            most[0] = max(most[0], len(busy))
        time.sleep(0.2)
        with guard:
            busy.remove(way.url)
        return Failure("connection", "there is none")

    boards = [
        source.Asked(
            node(f"n{n}", bmc=Bmc(redfish=f"http://127.0.0.1:{n}", credentials=Reference(env="BMC_LOGIN"))), SKU
        )
        for n in range(1, 25)
    ]
    began = time.monotonic()
    found = source.read(boards, seconds=30, concurrency=8, reader=slow)
    assert len(found.nodes) == len(set(per_bmc)) == len(per_bmc) == 24
    assert 4 <= most[0] <= 8
    assert time.monotonic() - began < 24 * 0.2
