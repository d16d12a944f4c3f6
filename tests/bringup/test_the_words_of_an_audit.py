"""`lockstep audit` with words of all kinds, over answers gathered before: baselines, parts, watches, exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bringup import hostlists, known, shards
from inventory import load as inventory_load
from lockstep.base import errors, settings
from lockstep.cli import main
from tests.bringup import answers

OLD = "580.126.20"
LOCKSTEP = Path(sys.executable).with_name("lockstep")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own with a state folder in it, and no checkout around it."""
    for name in ("LOCKSTEP_ROOT", "LOCKSTEP_FACTS", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCKSTEP_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "state").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The verb in this process: exit code, output, errors."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main.run(["audit", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


Run = Callable[..., tuple[int, str, str]]


def _outputs(folder: Path, nodes: Mapping[str, bytes], suffix: str = ".jsonl") -> Path:
    folder.mkdir()
    for name, content in nodes.items():
        (folder / f"{name}{suffix}").write_bytes(content)
    return folder


def _three(driver: str = OLD) -> dict[str, bytes]:
    nodes = {f"n{index}": answers.answer(str(index)) for index in range(1, 6)}
    return nodes | {"n6": answers.answer("6", driver=driver, ondisk=driver)}


def _findings(text: str) -> list[tuple[str, list[str]]]:
    return [(one["id"], one["nodes"]) for pool in json.loads(text)["pools"] for one in pool["findings"]]


@pytest.mark.parametrize("suffix", ["", ".jsonl", ".out"])
def test_a_folder_of_outputs_needs_no_fleet_file(here: Path, run: Run, suffix: str) -> None:
    _outputs(here / "outputs", _three(), suffix)
    code, said, _ = run("--from-dir", "outputs")
    assert code == 1
    assert "6 nodes" in said
    assert OLD in said


def test_what_ansible_wraps_in_json_is_unwrapped(here: Path, run: Run) -> None:
    wrapped = {name: json.dumps({"stdout": text.decode(), "rc": 0}).encode() for name, text in _three().items()}
    _outputs(here / "tree", wrapped, "")
    code, said, _ = run("--from-dir", "tree", "--format", "json")
    assert code == 1
    assert len(json.loads(said)["pools"][0]["nodes"]) == 6


def test_an_output_that_is_none_is_an_unreachable_node_and_not_left_out(here: Path, run: Run) -> None:
    _outputs(here / "outputs", {"n1": answers.answer("1"), "n2": b"Permission denied\n"})
    code, said, _ = run("--from-dir", "outputs")
    assert code == 3
    assert "n2 unreachable" in said


def test_an_empty_folder_and_an_empty_group_are_not_measured(here: Path, run: Run) -> None:
    (here / "outputs").mkdir()
    assert run("--from-dir", "outputs")[0] == 3
    (here / "hosts.ini").write_text("[gpu]\n")
    assert run("--ansible-inventory", "hosts.ini")[0] == 3


def test_an_output_of_no_node_of_the_fleet_is_told(here: Path, run: Run) -> None:
    path = answers.fleet_file(here, {"gpu-001": "", "gpu-002": ""})
    _outputs(here / "outputs", {"gpu-001": answers.answer("1"), "gpu-2": answers.answer("2")})
    code, out, err = run(str(path), "--facts", "outputs")
    assert code == 3
    assert "gpu-002 unreachable" in out
    assert err == "outputs: warning: fleet test has no node gpu-2\n"


def test_what_is_no_file_is_named_and_no_node_is_lost_with_it(here: Path, run: Run) -> None:
    os.mkfifo(_outputs(here / "outputs", {"gpu-001": answers.answer("1")}) / "gpu-002.jsonl")
    code, _, said = run("--from-dir", "outputs")
    assert code == 2
    assert "gpu-002.jsonl: error: is no file" in said


def test_files_whose_names_are_no_hosts_are_refused_by_name(here: Path, run: Run) -> None:
    _outputs(here / "outputs", {"-oProxyCommand=touch owned": answers.answer("1"), "a\x1b[2Jb": answers.answer("2")})
    code, _, said = run("--from-dir", "outputs")
    assert code == 2
    assert "its name is no host name" in said
    assert r"\x1b[2J" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("name", ["-oProxyCommand=touch owned", "a;touch owned", "$(touch owned)", "a\x1b[2J", "a b"])
def test_a_hostile_host_name_is_refused_before_anything_is_run(here: Path, run: Run, name: str) -> None:
    (here / "hosts.yaml").write_text(json.dumps({"gpu": {"hosts": {name: {}}}}))
    code, out, said = run("--ansible-inventory", "hosts.yaml")
    assert code == 2, said
    assert "\x1b" not in out + said
    code, out, said = run("--hosts", name)
    assert code == 2, said
    assert not (here / "owned").exists()


def test_an_inventory_says_how_its_hosts_are_reached(here: Path) -> None:
    (here / "key").write_text("x")
    (here / "key").chmod(0o600)
    path = here / "hosts.ini"
    path.write_text(
        "[gpu]\ng[1:2] ansible_host=127.90.97.1 ansible_port=2201 ansible_user=me ansible_ssh_private_key_file=key\n"
        "[cpu]\nc1\n"
    )
    found = hostlists.from_ansible(path, ["gpu"])
    assert list(found) == ["g1", "g2"]
    way = found[next(iter(found))]
    assert (way.address, way.port, way.user) == ("127.90.97.1", 2201, "me")
    assert [identity.path for identity in way.identities] == ["key"]
    with pytest.raises(errors.InputError, match="no group 'gqu'"):
        hostlists.from_ansible(path, ["gqu"])


def test_a_pinset_is_a_baseline_without_a_fleet_file(here: Path, run: Run) -> None:
    _outputs(here / "outputs", _three())
    code, said, _ = run("--from-dir", "outputs", "--pinset", answers.PINSET, "--sku", answers.SKU, "--format", "json")
    assert code == 1
    pool = json.loads(said)["pools"][0]
    assert pool["verdicts"] == {"drifted": 1, "admit": 5}
    assert f"lock {answers.PINSET}@any" in pool["baseline"]
    assert run("--from-dir", "outputs", "--pinset", "nothing")[0] == 2
    assert run("--from-dir", "outputs", "--pinset", answers.PINSET, "--sku", "hgx")[0] == 2


def test_a_golden_node_is_named_with_like(here: Path, run: Run) -> None:
    _outputs(here / "outputs", _three())
    code, said, _ = run("--from-dir", "outputs", "--like", "n6")
    assert code == 1
    assert "compared with node n6" in said
    assert run("--from-dir", "outputs", "--like", "n9")[0] == 2


def test_a_report_is_a_baseline_of_what_is_known(here: Path, run: Run) -> None:
    _outputs(here / "outputs", _three())
    assert run("--from-dir", "outputs", "--format", "json", "--output", "known.json")[0] == 1
    code, said, _ = run("--from-dir", "outputs", "--baseline", "known.json")
    assert code == 0
    assert "known deviations of known.json are left out" in said
    _outputs(here / "later", _three("580.95.05"))
    assert run("--from-dir", "later", "--baseline", "known.json")[0] == 1
    (here / "no.json").write_text("{}")
    assert run("--from-dir", "outputs", "--baseline", "no.json")[0] == 2


def test_since_shows_what_is_new(here: Path, run: Run) -> None:
    nodes = {"n1": answers.answer("1"), "n2": answers.answer("2", driver=OLD, ondisk=OLD)}
    fleet = str(answers.fleet_file(here, dict.fromkeys((*nodes, "n3"), "")))
    old = _outputs(here / "old", {**nodes, "n3": answers.answer("3")})
    given = settings.load()
    from bringup import folders, stored
    from pinsets import components
    from pinsets.facts import Snapshot

    skus = {node.name: pool.sku for pool in inventory_load.fleet(fleet, given).pools for node in pool.nodes}
    earlier = folders.read(old, components.load(), skus)
    stored.save(Snapshot(time.time() - 7200, earlier.nodes), given.of_fleet("test"), "test")
    _outputs(here / "new", {**nodes, "n3": answers.answer("3", driver=OLD, ondisk=OLD)})
    code, said, _ = run(fleet, "--facts", "new", "--since", "1h", "--format", "json")
    assert code == 1
    assert {node for _, listed in _findings(said) for node in listed} == {"n3"}
    assert run(fleet, "--facts", "old", "--since", "1h")[0] == 0
    assert run(fleet, "--facts", "old", "--since", "1d")[0] == 3
    assert run(fleet, "--facts", "old", "--since", "yesterday")[0] == 2


def test_times_are_spans_or_moments() -> None:
    assert known.moment("1h30m", 10_000.0) == 10_000.0 - 5400
    assert known.moment("1970-01-02", 0.0) == 86_400.0
    assert known.moment("1970-01-02T01:00:00+01:00", 0.0) == 86_400.0


def test_parts_of_a_fleet_are_whole_domains_and_merge_to_the_whole(here: Path, run: Run) -> None:
    names = [f"n{index}" for index in range(1, 7)]
    path = answers.fleet_file(here, dict.fromkeys(names, ""))
    text = path.read_text()
    for index, name in enumerate(names):
        text = text.replace(
            f"{name}: {{address: 127.90.98.{index + 1}, domain: r1",
            f"{name}: {{address: 127.90.98.{index + 1}, domain: r{index // 2}",
        )
    path.write_text(text)
    _outputs(here / "outputs", _three())
    fleet = inventory_load.fleet(str(path), settings.load())
    parts = [shards.parse(f"{index}/2").of_fleet(fleet, names) for index in (1, 2)]
    assert parts == [["n1", "n2", "n5", "n6"], ["n3", "n4"]]
    for index in (1, 2):
        run(str(path), "--facts", "outputs", "--shard", f"{index}/2", "--save", f"part-{index}.jsonl.gz")
    whole = run(str(path), "--facts", "outputs", "--format", "json")
    merged = run("merge", "part-1.jsonl.gz", "part-2.jsonl.gz", "--fleet", str(path), "--format", "json")
    assert merged[0] == whole[0] == 1
    assert _findings(merged[1]) == _findings(whole[1])
    for text in ("0/2", "3/2", "2", "a/b"):
        assert run(str(path), "--shard", text)[0] == 2


def test_a_merge_that_lacks_a_part_did_not_measure_the_whole(here: Path, run: Run) -> None:
    path = str(answers.fleet_file(here, {"n1": "", "n2": ""}))
    _outputs(here / "one", {"n1": answers.answer("1")})
    run(path, "--facts", "one", "--node", "n1", "--save", "one.jsonl.gz")
    code, said, _ = run("merge", "one.jsonl.gz", "--fleet", path)
    assert code == 3
    assert "not in this snapshot" in said


def test_two_snapshots_are_compared_node_by_node(here: Path, run: Run) -> None:
    _outputs(here / "a", {"n1": answers.answer("1"), "n2": answers.answer("2"), "n3": answers.answer("3")})
    _outputs(here / "b", {"n1": answers.answer("1"), "n2": answers.answer("2", driver=OLD), "n4": answers.answer("4")})
    for name in ("a", "b"):
        run("--from-dir", name, "--save", f"{name}.jsonl.gz")
    code, said, _ = run("diff", "a.jsonl.gz", "b.jsonl.gz")
    assert code == 1
    assert f"driver@running: {answers.lock_version('driver')} → {OLD}" in said
    assert "new here: n4" in said
    assert "gone: n3" in said
    data = json.loads(run("diff", "a.jsonl.gz", "b.jsonl.gz", "--format", "json")[1])
    assert data["groups"][0]["nodes"] == ["n2"]
    assert run("diff", "a.jsonl.gz", "a.jsonl.gz")[0] == 0
    assert run("diff", "a.jsonl.gz", "nothing.jsonl.gz")[0] == 2


@pytest.mark.parametrize(("words", "code"), [((), 3), (("1",), 0), (("50%",), 0), (("0",), 3), (("33%",), 0)])
def test_some_nodes_may_be_unreachable_when_it_is_said(here: Path, run: Run, words: tuple[str, ...], code: int) -> None:
    _outputs(here / "outputs", {"n1": answers.answer("1"), "n2": answers.answer("2"), "n3": b""})
    options = ("--max-unreachable", *words) if words else ()
    assert run("--from-dir", "outputs", *options)[0] == code
    _outputs(here / "silent", {"n1": b""})
    assert run("--from-dir", "silent", "--max-unreachable", "100%")[0] == 3, "no node at all is never a success"


def test_a_watch_writes_its_file_again_and_again_until_it_is_interrupted(here: Path) -> None:
    path = answers.fleet_file(here, {"n1": ""})
    _outputs(here / "outputs", {"n1": answers.answer("1")})
    target = here / "lockstep.prom"
    words = [str(path), "--facts", "outputs", "--watch", "1", "--format", "prometheus", "--output", str(target)]
    watching = subprocess.Popen([str(LOCKSTEP), "audit", *words], stderr=subprocess.PIPE, env=dict(os.environ))
    try:
        seen: set[int] = set()
        for _ in range(600):
            if target.exists():
                seen.add(target.stat().st_ino)
                assert target.read_text().startswith("# HELP lockstep_audit_timestamp_seconds")
            if len(seen) > 1:
                break
            time.sleep(0.05)
        assert len(seen) > 1, "a new file each time, never one that is written in place"
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 130
    finally:
        watching.kill()
        watching.communicate()
    assert [one.name for one in here.glob(".lockstep.prom*")] == []


def test_fencing_needs_facts_read_now_and_a_cluster(here: Path, run: Run) -> None:
    path = str(answers.fleet_file(here, {"n1": ""}))
    _outputs(here / "outputs", {"n1": answers.answer("1", driver=OLD, ondisk=OLD)})
    code, _, said = run(path, "--facts", "outputs", "--fence")
    assert code == 4
    assert "only by facts read now" in said
    assert run("--from-dir", "outputs", "--fence")[0] == 2
