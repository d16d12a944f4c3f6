"""From answers of nodes to what an audit says: groups, exit codes, JSON, JUnit."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

import jsonschema
import pytest

from bringup import audit, reading, report, report_junit
from bringup.transport.base import Failure, FailureKind
from bringup.transport.fake import Answer, Fake
from inventory import load
from lockstep.base import errors, settings
from lockstep.base.errors import ExitCode
from pinsets.findings import Severity, Verdict
from tests.bringup import answers

Nodes = Mapping[str, Answer]
OLD = "580.126.20"


@pytest.fixture
def given(tmp_path: Path) -> settings.Settings:
    """State of its own, no checkout."""
    return settings.Settings(None, tmp_path / "state", tmp_path / "cache", tmp_path / "labs")


def _audit(
    given: settings.Settings, tmp_path: Path, nodes: Nodes, more: Mapping[str, str] | None = None
) -> audit.Audit:
    path = answers.fleet_file(tmp_path, {name: (more or {}).get(name, "") for name in nodes})
    fleet = load.fleet(str(path), given)
    return audit.of_fleet(fleet, reading.read_fleet(fleet, given, transport=Fake(dict(nodes))))


def _hosts(nodes: Nodes, like: str | None = None) -> audit.Audit:
    return audit.of_hosts(reading.read_hosts(list(nodes), like=like, transport=Fake(dict(nodes))))


DEAD = Failure(FailureKind.REFUSED, "nothing listens on port 22", remedy="is sshd running there?")
STUCK = answers.abandoned(answers.answer("s"), "smi")


@pytest.mark.parametrize(
    ("nodes", "code", "strict"),
    [
        ({"a": answers.answer("1"), "b": answers.answer("2")}, ExitCode.IN_STEP, ExitCode.IN_STEP),
        ({"a": answers.answer("1"), "b": answers.answer("2", driver=OLD)}, ExitCode.DRIFT, ExitCode.DRIFT),
        ({"a": answers.answer("1"), "b": DEAD}, ExitCode.NOT_MEASURED, ExitCode.NOT_MEASURED),
        ({"a": answers.answer("1"), "b": STUCK}, ExitCode.NOT_MEASURED, ExitCode.NOT_MEASURED),
        ({"a": answers.answer("1", driver=OLD), "b": DEAD}, ExitCode.DRIFT, ExitCode.NOT_MEASURED),
        ({"a": answers.answer("1", vbios3=None), "b": answers.answer("2")}, ExitCode.DRIFT, ExitCode.DRIFT),
        ({"a": answers.answer("1", ondisk=OLD)}, ExitCode.DRIFT, ExitCode.DRIFT),
    ],
    ids=["in step", "drift", "unreachable", "unreadable", "drift and unreachable", "gpu missing", "other on disk"],
)
def test_the_exit_code_says_what_was_found(
    given: settings.Settings, tmp_path: Path, nodes: Nodes, code: ExitCode, strict: ExitCode
) -> None:
    found = _audit(given, tmp_path, nodes)
    assert audit.exit_code(found) is code
    assert audit.exit_code(found, strict=True) is strict


def test_nodes_in_repair_are_listed_apart_and_change_no_exit_code(given: settings.Settings, tmp_path: Path) -> None:
    nodes = {"a": answers.answer("1"), "b": DEAD, "c": answers.answer("3", driver=OLD)}
    found = _audit(given, tmp_path, nodes, {"b": ", state: repair", "c": ", state: held, holder: ops"})
    pool = found.pools[0]
    assert [group.nodes for group in pool.groups] == [("a",)]
    assert {name for group in pool.apart for name in group.nodes} == {"b", "c"}
    assert audit.exit_code(found) is ExitCode.IN_STEP


def test_only_nodes_out_of_service_is_not_measured(given: settings.Settings, tmp_path: Path) -> None:
    found = _audit(given, tmp_path, {"a": answers.answer("1")}, {"a": ", state: repair"})
    assert audit.exit_code(found) is ExitCode.NOT_MEASURED


def test_warnings_count_only_when_asked_for(given: settings.Settings, tmp_path: Path) -> None:
    def with_bios(serial: str, version: str) -> bytes:
        return answers.answer(serial, admission='{"lock": "x"}', bios=version)

    found = _audit(
        given, tmp_path, {"a": with_bios("1", "1.0"), "b": with_bios("2", "1.0"), "c": with_bios("3", "1.1")}
    )
    assert any(finding.severity is Severity.WARN for finding in found.pools[0].comparison.findings)
    assert audit.exit_code(found) is ExitCode.IN_STEP
    assert audit.exit_code(found, fail_on=frozenset({Severity.WARN})) is ExitCode.DRIFT


def test_nodes_are_grouped_by_how_they_deviate(given: settings.Settings, tmp_path: Path) -> None:
    nodes: dict[str, Answer] = {f"n{index}": answers.answer(str(index)) for index in range(6)}
    nodes |= {"x1": answers.answer("x1", driver=OLD), "x2": answers.answer("x2", driver=OLD), "y": DEAD}
    groups = _audit(given, tmp_path, nodes).pools[0].groups
    assert [(group.nodes, group.verdict) for group in groups] == [
        (tuple(f"n{index}" for index in range(6)), Verdict.ADMIT),
        (("y",), Verdict.UNREACHABLE),
        (("x1", "x2"), Verdict.DRIFTED),
    ]
    assert ("driver@running", f"{OLD}", answers.lock_version("driver")) in groups[2].deviations


def test_an_unreachable_node_carries_the_remedy_of_its_failure(given: settings.Settings, tmp_path: Path) -> None:
    found = _audit(given, tmp_path, {"a": answers.answer("1"), "b": DEAD})
    finding = next(one for one in found.pools[0].comparison.findings if one.id == "unreachable")
    assert finding.remedy == "is sshd running there?"
    assert finding in found.pools[0].comparison.nodes["b"].findings  # type: ignore[index]


def test_the_json_form_fits_its_schema_and_names_what_deviates(given: settings.Settings, tmp_path: Path) -> None:
    nodes = {"a": answers.answer("1"), "b": answers.answer("2", nccl="2.30.7"), "c": DEAD}
    found = _audit(given, tmp_path, nodes)
    code = audit.exit_code(found)
    data = json.loads(report.report(found, code).model_dump_json())
    jsonschema.validate(data, report.AuditReport.model_json_schema(mode="serialization"))
    pool = data["pools"][0]
    assert (data["version"], data["exit_code"], pool["burnin"]) == (1, 1, "none")
    by_name = {node["name"]: node for node in pool["nodes"]}
    assert by_name["b"]["deviations"]["nccl@library"].startswith("2.30.7")
    assert by_name["c"]["unreachable"] == "refused: nothing listens on port 22"
    assert by_name["c"]["admitted"] is None
    assert pool["common"]["driver@running"] == answers.lock_version("driver")


def test_the_schema_that_is_committed_is_the_models_own(checkout: Path) -> None:
    path = checkout / "docs" / "schemas" / "audit.schema.json"
    if not path.exists():
        pytest.skip("docs/schemas/audit.schema.json is not generated yet")
    committed = json.loads(path.read_text())
    assert (
        committed["properties"].keys()
        == report.AuditReport.model_json_schema(mode="serialization")["properties"].keys()
    )


def test_junit_has_a_case_per_node_and_counts_that_agree(given: settings.Settings, tmp_path: Path) -> None:
    nodes = {"a": answers.answer("1"), "b": answers.answer("2", driver=OLD), "c": DEAD, "d": answers.answer("4")}
    text = report_junit.junit(_audit(given, tmp_path, nodes, {"d": ", state: held"}))
    root = ElementTree.fromstring(text)
    suite = root.find("testsuite")
    assert suite is not None
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert {name: [child.tag for child in case] for name, case in cases.items()} == {
        "a": [],
        "b": ["failure"],
        "c": ["error"],
        "d": ["skipped"],
    }
    assert [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "1"]
    assert [root.get(key) for key in ("tests", "failures", "errors")] == ["4", "1", "1"]
    assert "burnin: none" in (suite.findtext("system-out") or "")


def test_junit_survives_characters_that_xml_cannot_carry(given: settings.Settings, tmp_path: Path) -> None:
    failure = Failure(FailureKind.BAD_OUTPUT, "it said \x1b[31m\x00 <&> no")
    text = report_junit.junit(_audit(given, tmp_path, {"a": failure}))
    assert ElementTree.fromstring(text) is not None


def test_hosts_without_a_fleet_are_compared_with_their_majority_or_with_one_of_them() -> None:
    nodes: dict[str, Answer] = {f"n{index}": answers.answer(str(index)) for index in range(9)}
    nodes["odd"] = answers.answer("odd", driver=OLD)
    majority = _hosts(nodes)
    assert audit.exit_code(majority) is ExitCode.DRIFT
    assert majority.pools[0].groups[1].nodes == ("odd",)
    golden = _hosts(nodes, like="odd")
    assert golden.pools[0].groups[0].nodes == ("odd",)
    with pytest.raises(errors.InputError, match="not among the hosts"):
        _hosts(nodes, like="elsewhere")


@pytest.mark.parametrize("good", [0, 1, 4])
def test_hosts_whose_gpus_cannot_be_listed_are_not_in_step_however_many_they_are(good: int) -> None:
    nodes = {f"n{number}": answers.answer(str(number)) for number in range(1, 6)}
    stuck = [name for name in nodes if int(name[1:]) > good]
    found = _hosts({**nodes, **{name: answers.abandoned(nodes[name], "smi") for name in stuck}})
    verdicts = {str(name): one.verdict for name, one in found.pools[0].comparison.nodes.items()}
    assert {name for name, verdict in verdicts.items() if verdict is Verdict.UNREADABLE} == set(stuck)
    assert audit.exit_code(found) is ExitCode.NOT_MEASURED


def test_a_tool_that_hangs_on_every_node_is_not_agreement() -> None:
    stuck = {f"n{number}": answers.abandoned(answers.answer(str(number)), "kubelet") for number in range(1, 4)}
    found = _hosts(stuck)
    assert {one.verdict for one in found.pools[0].comparison.nodes.values()} == {Verdict.UNREADABLE}
    assert audit.exit_code(found) is ExitCode.NOT_MEASURED
    (one,) = (item for item in found.pools[0].comparison.findings if item.id == "unreadable.kubelet")
    assert (str(one.coordinate), one.observed, len(one.nodes)) == ("kubelet@ondisk", "unreadable: no answer in 8 s", 3)


def test_what_the_golden_node_could_not_read_is_said_and_compared_with_nobody() -> None:
    nodes = {"golden": answers.abandoned(answers.answer("1"), "kubelet"), "other": answers.answer("2")}
    (pool,) = _hosts(nodes, like="golden").pools
    assert pool.comparison.baseline == "node golden; not compared, unreadable there: kubelet@ondisk"


def test_hosts_without_a_driver_have_no_gpus_to_list() -> None:
    """A driver that is upgraded and not rebooted cannot tell of its GPUs either: then the driver is the finding."""
    mute = {f"n{number}": answers.abandoned(answers.answer(str(number), ondisk=OLD), "smi") for number in range(1, 4)}
    assert Verdict.UNREADABLE not in {one.verdict for one in _hosts(mute).pools[0].comparison.nodes.values()}


def test_gpus_of_hosts_without_a_fleet_go_by_address() -> None:
    found = _hosts({"a": answers.answer("1"), "b": answers.answer("2", vbios3="97.00.00.00.01")})
    coordinates = {str(one.coordinate) for one in found.pools[0].comparison.findings}
    assert "firmware.gpu[pci:0019:01:00.0]@running" in coordinates


def test_a_stored_snapshot_is_read_back_and_says_its_age(given: settings.Settings, tmp_path: Path) -> None:
    path = answers.fleet_file(tmp_path, {"a": "", "b": ""})
    fleet = load.fleet(str(path), given)
    with pytest.raises(errors.NotMeasuredError, match="no snapshot"):
        reading.read_fleet(fleet, given, facts="snapshot")
    nodes = {"a": answers.answer("1"), "b": answers.answer("2", driver=OLD)}
    live = reading.read_fleet(fleet, given, transport=Fake(dict(nodes)))
    assert live.path is not None
    assert live.path.stat().st_mode & 0o777 == 0o600
    stored = reading.read_fleet(fleet, given, facts="snapshot")
    assert not stored.live
    assert "old" in stored.source
    assert stored.snapshot == live.snapshot
    assert reading.read_fleet(fleet, given, facts=str(live.path)).comparisons == stored.comparisons


def test_a_reading_of_some_nodes_goes_over_the_last_one_of_all(given: settings.Settings, tmp_path: Path) -> None:
    fleet = load.fleet(str(answers.fleet_file(tmp_path, {"a": "", "b": ""})), given)
    nodes = {"a": answers.answer("1"), "b": answers.answer("2")}
    reading.read_fleet(fleet, given, transport=Fake(dict(nodes)))
    part = reading.read_fleet(fleet, given, nodes=["b"], transport=Fake({"b": answers.answer("2", driver=OLD)}))
    assert set(part.snapshot.nodes) == {"b"}
    assert set(part.comparisons["blackwell"].nodes) == {"b"}  # type: ignore[index]
    whole = reading.read_fleet(fleet, given, facts="snapshot")
    assert {name: node.verdict for name, node in whole.comparisons["blackwell"].nodes.items()} == {  # type: ignore[index]
        "a": Verdict.ADMIT,
        "b": Verdict.DRIFTED,
    }


@pytest.mark.parametrize("damaged", [b"", b"no snapshot", b"\x1f\x8b\x08 cut"])
def test_a_damaged_older_snapshot_spoils_no_reading_of_some_nodes(
    given: settings.Settings, tmp_path: Path, damaged: bytes
) -> None:
    fleet = load.fleet(str(answers.fleet_file(tmp_path, {"a": "", "b": ""})), given)
    whole = reading.read_fleet(fleet, given, transport=Fake({"a": answers.answer("1"), "b": answers.answer("2")}))
    assert whole.path is not None
    whole.path.write_bytes(damaged)
    part = reading.read_fleet(fleet, given, nodes=["b"], transport=Fake({"b": answers.answer("2")}))
    assert set(part.snapshot.nodes) == {"b"}


def test_a_reading_that_cannot_be_stored_is_shown_and_says_so(given: settings.Settings, tmp_path: Path) -> None:
    given.state.parent.mkdir(exist_ok=True)
    given.state.write_text("a file where the folder should be")
    found = _audit(given, tmp_path, {"a": answers.answer("1")})
    assert audit.exit_code(found) is ExitCode.IN_STEP
    assert found.reading.path is None
    assert "not stored" in found.reading.source


def test_old_snapshots_are_dropped(given: settings.Settings, tmp_path: Path) -> None:
    from bringup import stored
    from lockstep.base import limits
    from pinsets.facts import Snapshot

    for index in range(limits.SNAPSHOTS_KEPT + 5):
        stored.save(Snapshot(1_800_000_000.0 + index, {}), given, "test")
    names = sorted(path.name for path in stored.folder(given).iterdir())
    assert len(names) == limits.SNAPSHOTS_KEPT
    assert stored.latest(given, "test") == stored.folder(given) / names[-1]


def test_a_folder_of_probe_outputs_is_a_snapshot_too(given: settings.Settings, tmp_path: Path) -> None:
    fleet = load.fleet(str(answers.fleet_file(tmp_path, {"a": "", "b": ""})), given)
    folder = tmp_path / "outputs"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(answers.answer("1"))
    (folder / "b.jsonl").write_bytes(answers.answer("2", nccl="2.30.7"))
    found = reading.read_fleet(fleet, given, facts=str(folder)).comparisons["blackwell"]  # type: ignore[index]
    assert {name: node.verdict for name, node in found.nodes.items()} == {"a": Verdict.ADMIT, "b": Verdict.DRIFTED}


def test_unknown_pools_and_nodes_are_named_before_anything_is_contacted(
    given: settings.Settings, tmp_path: Path
) -> None:
    fleet = load.fleet(str(answers.fleet_file(tmp_path, {"gpu-001": "", "gpu-002": ""})), given)
    fake = Fake({})
    with pytest.raises(errors.InputError, match="no pool `hoper`") as caught:
        reading.read_fleet(fleet, given, pools=["hoper"], nodes=["gpu-01"], transport=fake)
    assert "did you mean `gpu-001`" in caught.value.message
    assert fake.calls == []


def test_a_pool_that_names_redfish_is_read_by_both_and_a_silent_bmc_loses_no_node(
    given: settings.Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BMC_LOGIN", "user:secret")
    bmc = ", bmc: {redfish: 'https://127.0.0.1:1', credentials: {env: BMC_LOGIN}}"
    path = answers.fleet_file(tmp_path, {"a": bmc})
    path.write_text(path.read_text().replace("    nodes:\n", "    sources: [ssh, redfish]\n    nodes:\n"))
    fleet = load.fleet(str(path), given)
    read = reading.read_fleet(fleet, given, transport=Fake({"a": answers.answer("1")}), store=False)
    assert read.source == "read now by SSH and redfish"
    assert audit.exit_code(audit.of_fleet(fleet, read)) is ExitCode.IN_STEP
    alone = reading.read_fleet(fleet, given, facts="ssh", transport=Fake({"a": answers.answer("1")}), store=False)
    assert alone.source == "read now by SSH"
