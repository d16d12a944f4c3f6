"""`lockstep place explain`: every gate from a situation on paper, the audit's report, hostile names, 60 columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bringup import report
from lockstep.cli import main
from pinsets.findings import Verdict

GANG = {"name": "train", "need": "same-domain", "members": [{"gpus": 4, "count": 4}], "tenant": "mine"}


class _Told:
    """One call: its exit code and, with ``--format json``, what it said."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys

    def file(self, name: str, data: object) -> str:
        (self._folder / name).write_text(json.dumps(data))
        return str(self._folder / name)

    def __call__(self, request: object, *words: str, where: tuple[str, ...] = ("--nvl72", "2")) -> tuple[int, Any]:
        asked = ["--request", self.file("request.json", request)]
        code = main.run(["place", "explain", *where, *asked, *words, "--format", "json"])
        said = self._capsys.readouterr()
        return code, json.loads(said.out) if said.out else said.err


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> _Told:
    return _Told(tmp_path, capsys)


SITUATION = {
    "events": [
        {"node": "d0000-n00", "gpu": 1, "code": "xid 79"},
        {"node": "d0000-n01", "code": "xid 54"},
        {"node": "d0000-n02", "gpu": 0, "code": "xid 74"},
        {"node": "d0001-n02", "gpu": 0, "code": "xid 4242"},
    ],
    "stale": ["d0000-n03"],
    "headroom": {f"d0000-n{number:02d}": 0.05 for number in range(18)},
    "running": [
        {"name": "low", "members": [{"gpus": 4, "count": 12}], "need": "same-domain", "tenant": "a", "exclusive": True}
    ],
}


def test_every_gate_of_a_situation_is_named_for_its_node(told: _Told) -> None:
    situation = told.file("now.json", {**SITUATION, "running": []})
    code, said = told(GANG, "--situation", situation)
    assert code == 0
    shut = {node["name"]: (node["gate"], node["reason"]) for node in said["nodes"] if node["gate"]}
    assert {name: gate for name, (gate, _) in shut.items()} == {
        "d0000-n00": "capacity",
        "d0000-n01": "health.node",
        "d0000-n02": "capacity",
        "d0000-n03": "telemetry.freshness",
    }
    assert "gpu1 xid 79" in shut["d0000-n00"][1]
    assert "gpu0 xid 74" in shut["d0000-n02"][1]
    assert [scope["name"] for scope in said["candidates"]] == ["d0001", "d0000"]
    assert [scope["level"] for scope in said["candidates"]] == [3, 0]
    assert {item["node"][:5] for item in said["placed"]} == {"d0001"}
    assert said["warnings"] == [
        "xid 4242 is not in the policy and came without a recovery action; nodes that reported it: 1"
    ]


def test_what_runs_already_is_in_the_way_and_of_lower_priority_advised(told: _Told) -> None:
    busy = {"running": [*SITUATION["running"], {**SITUATION["running"][0], "name": "low2", "tenant": "b"}]}  # type: ignore[misc]
    code, said = told(
        {**GANG, "members": [{"gpus": 4, "count": 8}], "priority": 1}, "--situation", told.file("n", busy)
    )
    assert code == 4
    assert [scope["verdict"] for scope in said["candidates"]] == ["refused", "refused"]
    assert all("tenancy on 12 nodes" in scope["reason"] for scope in said["candidates"])
    assert said["preempt_advice"] in (["low"], ["low2"])


@pytest.mark.parametrize(
    ("situation", "complaint"),
    [
        ({"events": [{"node": "nobody", "code": "xid 79"}]}, "no node 'nobody' in this fleet"),
        ({"events": [{"node": "d0000-n00", "gpu": 4, "code": "xid 79"}]}, "no GPU 4: it has 4"),
        ({"events": [{"node": "d0000-n00", "code": 79}]}, "events[0]"),
        ({"stale": "d0000-n00"}, "`stale` is a list of node names"),
        ({"headroom": {"d0000-n00": 12}}, "`headroom` is node: fraction from 0 to 1"),
        ({"weather": 1}, "unknown field `weather`"),
        ({"running": [{"members": [{"gpus": 1, "memory": "5"}]}]}, "running-0: members[0]: `memory` needs one of"),
        ([], "a mapping with events"),
    ],
)
def test_a_wrong_situation_is_bad_input(told: _Told, situation: object, complaint: str) -> None:
    code, said = told(GANG, "--situation", told.file("now.json", situation))
    assert code == 2
    assert complaint in said


def _audited(**verdicts: tuple[Verdict, str | None]) -> object:
    nodes = tuple(
        report.NodeReport(
            name=name.replace("_", "-"),
            verdict=verdict,
            in_service=True,
            lock=lock,
            unreachable=None,
            observed_at="2026-11-01T10:00:00+00:00",
            boot_id=None,
            serial=None,
            admitted=None,
            deviations={},
        )
        for name, (verdict, lock) in verdicts.items()
    )
    pool = report.PoolReport(
        name="p",
        sku=None,
        os=None,
        pinset=None,
        lock=None,
        burnin=None,
        baseline="lock",
        verdict=Verdict.ADMIT,
        verdicts={},
        domains={},
        common={},
        nodes=nodes,
        findings=(),
    )
    whole = report.AuditReport(
        fleet=None,
        taken_at="2026-11-01T10:00:00+00:00",
        live=True,
        source="ssh",
        interrupted=False,
        second_pass=(),
        exit_code=0,
        pools=(pool,),
    )
    return whole.model_dump(mode="json")


def test_with_an_audit_only_what_it_found_in_step_is_open_and_a_gang_has_one_lock(told: _Told) -> None:
    known = {f"d0000_n{number:02d}": (Verdict.ADMIT, "one" if number < 4 else "two") for number in range(7)}
    audited = _audited(**{**known, "d0000_n07": (Verdict.DRIFTED, "one"), "d0000_n08": (Verdict.ADMIT, None)})
    code, said = told(GANG, "--audit", told.file("audit.json", audited))
    assert code == 0
    assert [item["node"] for item in said["placed"]] == [f"d0000-n{number:02d}" for number in range(4)]
    shut = {node["name"]: node["reason"] for node in said["nodes"] if node["gate"] == "audit.verdict"}
    assert shut["d0000-n07"] == "verdict drifted"
    assert shut["d0000-n08"] == shut["d0001-n00"] == "never audited"
    code, said = told({**GANG, "members": [{"gpus": 4, "count": 5}]}, "--audit", told.file("audit.json", audited))
    assert code == 4


def test_another_file_is_no_audit(told: _Told) -> None:
    code, said = told(GANG, "--audit", told.file("audit.json", {"pools": [{"nodes": [{"name": "x"}]}]}))
    assert code == 2
    assert "not a report of `lockstep audit --format json`" in said


def test_names_of_people_move_no_terminal_and_break_no_table(
    told: _Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    request = told.file("request.json", {**GANG, "name": "[/x]\x1b[31m:smile:"})
    situation = told.file("now.json", {"events": [{"node": "d0000-n00", "code": "[bold]\x1b[2J"}]})
    words = ["--request", request, "--situation", situation]
    assert main.run(["place", "explain", "--nvl72", "2", *words]) == 0
    said = capsys.readouterr().out
    assert "[/x]\\x1b[31m:smile:" in said
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= 60


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--nvl72", "2", "--seed", "-1"], "--seed"),
        (["--nvl72", "2", "lab"], "one of both"),
        ([], "one of both"),
        (["--nvl72", "2", "--format", "xml"], "--format"),
    ],
)
def test_options_that_contradict_each_other(
    told: _Told, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert main.run(["place", "explain", *words, "--request", told.file("request.json", GANG)]) == 2
    assert complaint in capsys.readouterr().err


def test_ranks_follow_the_numbers_of_slots(told: _Told, tmp_path: Path) -> None:
    (tmp_path / "unpadded.yaml").write_text(
        "fleet: unpadded\npools:\n  - name: pool\n    sku: lab-gb200\n    os: debian-12-amd64\n"
        "    pinset: 2026-09-lab-gb200\n    sources: [ssh]\n    nodes:\n"
        + "".join(
            f'      n{letter}: {{slot: "r1-u{slot}", address: "127.91.1.{slot}", domain: r1}}\n'
            for letter, slot in (("a", 10), ("b", 2), ("c", 1), ("d", 11))
        )
    )
    code, said = told(GANG, where=(str(tmp_path / "unpadded.yaml"),))
    assert code == 0, said
    assert [item["node"] for item in said["placed"]] == ["nc", "nb", "na", "nd"]


FLEET = """\
fleet: two
pools:
  - name: pool
    sku: {sku}
    os: {os}
    pinset: {pinset}
    sources: [ssh]
    nodes:
      n-01: {{slot: a, address: "127.91.1.1"}}
      n-02: {{slot: b, address: "127.91.1.2", state: new}}
      n-03: {{slot: c, address: "127.91.1.3", spare: true}}
      n-04: {{slot: d, address: "127.91.1.4", state: held, holder: me}}
"""


def test_only_nodes_in_service_take_work_and_only_in_ways_their_vendor_has(told: _Told, tmp_path: Path) -> None:
    fleet = tmp_path / "two.yaml"
    fleet.write_text(FLEET.format(sku="lab-gb200", os="debian-12-amd64", pinset="2026-09-lab-gb200"))
    code, said = told({"members": [{"gpus": 1, "profile": "3g"}]}, where=(str(fleet),))
    assert code == 0, said
    assert [item["node"] for item in said["placed"]] == ["n-01"]
    assert {node["name"]: node["gate"] for node in said["nodes"] if node["gate"]} == dict.fromkeys(
        ("n-02", "n-03", "n-04"), "audit.verdict"
    )
    fleet.write_text(FLEET.format(sku="mi300x", os="ubuntu-24.04-amd64", pinset="azhpc-2026-07-29-mi300x"))
    code, said = told({"members": [{"gpus": 1, "profile": "3g"}]}, where=(str(fleet),))
    assert code == 4
    assert "performance: time-slicing" in said
