"""Fleet files as data: what a sound one unfolds to, and every issue of one that is wrong.

tests/data/fleets/valid/NAME.yaml ends in comments ``# expect:`` (one node a line) and ``# issues:`` (warnings).
tests/data/fleets/invalid/NAME.yaml has its issues in NAME.txt, in file and line order. One that begins with
``# checkout: FOLDER`` is read with the pinsets and locks of tests/data/fleets/FOLDER, and its messages name CHECKOUT.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from inventory import load, model
from lockstep.base import errors, issues, settings
from pinsets import checks

CHECKOUT = Path(__file__).parents[2]
DATA = CHECKOUT / "tests" / "data" / "fleets"
VALID = sorted((DATA / "valid").glob("*.yaml"))
INVALID = sorted((DATA / "invalid").glob("*.yaml"))


def _places(path: Path | None = None) -> settings.Settings:
    first = path.read_text().partition("\n")[0] if path else ""
    named = first.partition("# checkout: ")[2]
    places = settings.load({"HOME": "/root"}, CHECKOUT)
    return dataclasses.replace(places, checkout=DATA / named) if named else places


def _named(paths: list[Path]) -> list[object]:
    return [pytest.param(path, id=path.stem.replace("_", " ")) for path in paths]


def _line(node: model.Node) -> str:
    words = [node.name, node.slot, node.address, node.domain, node.state.value]
    words += ["spare"] if node.spare else []
    words += [f"by {node.holder}"] if node.holder else []
    words += [f"generation {node.generation}"] if node.generation > 1 else []
    words += [f"serial {node.serial}"] if node.serial else []
    return " ".join(words)


def _comments(path: Path, title: str) -> list[str]:
    _, found, rest = path.read_text().partition(f"# {title}:\n")
    lines = rest.splitlines() if found else []
    taken = []
    for line in lines:
        if not line.startswith("#   "):
            break
        taken.append(line.removeprefix("#   "))
    return taken


def _texts(report: issues.Report, path: Path) -> list[str]:
    shown = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    folder = f"{DATA.relative_to(Path.cwd()) if DATA.is_relative_to(Path.cwd()) else DATA}/checkout"
    return [issue.text().replace(shown, "FILE").replace(folder, "CHECKOUT") for issue in report.ordered()]


@pytest.mark.parametrize("path", _named(VALID))
def test_a_sound_file_unfolds_to_its_nodes(path: Path) -> None:
    report = issues.Report()
    fleet = load.read(str(path), _places(), report)
    assert fleet is not None, _texts(report, path)
    assert [_line(node) for node in fleet.nodes] == _comments(path, "expect")
    assert _texts(report, path) == _comments(path, "issues")


@pytest.mark.parametrize("path", _named(INVALID))
def test_every_mistake_is_reported_at_once_with_line_and_hint(path: Path) -> None:
    report = issues.Report()
    assert load.read(str(path), _places(path), report, checks.CHECKS) is None
    assert _texts(report, path) == path.with_suffix(".txt").read_text().splitlines()
    assert report.errors


def test_the_error_carries_the_whole_report_and_exit_code_two() -> None:
    with pytest.raises(errors.InputError) as caught:
        load.fleet(str(DATA / "invalid" / "everything_at_once.yaml"), _places(), checks.CHECKS)
    assert caught.value.exit_code is errors.ExitCode.BAD_INPUT
    assert len(caught.value.diagnostics().splitlines()) > 6
    assert "nothing was touched" in caught.value.diagnostics()


def test_the_lab_has_two_pools_eight_nodes_two_domains_and_one_spare() -> None:
    fleet = load.fleet("lab", _places(), checks.CHECKS)
    assert len(fleet.pools) == 2
    assert [node.address for node in fleet.nodes] == [f"127.90.0.{number}" for number in range(1, 9)]
    assert {node.domain for node in fleet.nodes} == {"r1", "r2"}
    assert [node.name for node in fleet.nodes if node.spare] == ["gpu-005"]
    assert {node.state for node in fleet.nodes} == {model.NodeState.NEW}
    assert all(node.bmc is not None and node.bmc.driver == "command" for node in fleet.nodes)


def test_paths_of_a_fleet_file_are_relative_to_it_or_to_the_two_named_folders(tmp_path: Path) -> None:
    file = tmp_path / "fleets" / "f.yaml"
    file.parent.mkdir()
    file.write_text(
        "fleet: f\n"
        "ssh: {identity: {file: keys/id}, known_hosts: $LOCKSTEP_STATE/known_hosts}\n"
        "repositories:\n"
        "  - {apt: 'file:$LOCKSTEP_LABS/f/repository', key: ~/key.asc}\n"
        "  - {apt: 'file:///srv/apt', key: /etc/key.asc}\n"
        "pools:\n"
        "  - {name: p, sku: lab-b300, os: debian-12-amd64, pinset: x, nodes: {n1: {}}}\n"
    )
    places = settings.load({"LOCKSTEP_STATE": "/state", "LOCKSTEP_LABS": "/labs", "HOME": "/root"}, tmp_path)
    fleet = load.fleet(str(file), places)
    assert fleet.ssh.identity is not None
    assert fleet.ssh.identity.file == tmp_path / "fleets/keys/id"
    assert fleet.ssh.known_hosts == Path("/state/known_hosts")
    assert [entry.apt for entry in fleet.repositories] == ["file:/labs/f/repository", "file:/srv/apt"]
    assert fleet.repositories[0].key == Path("~/key.asc").expanduser()


def test_an_unknown_fleet_names_the_one_that_was_meant() -> None:
    with pytest.raises(errors.InputError, match="no fleet `labb`") as caught:
        load.fleet("labb", _places())
    assert caught.value.hint == "did you mean `lab`?"


def test_a_window_or_a_required_plan_is_read_though_it_is_not_supported_yet(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        "fleet: f\npools:\n  - name: p\n    sku: lab-b300\n    os: debian-12-amd64\n    pinset: x\n"
        "    disruption: {window: Sat 02:00-04:00, plan: required, budget: 2, wait: 1h30m}\n    nodes: {n1: {}}\n"
    )
    policy = load.fleet(str(file), _places()).pools[0].disruption
    assert (policy.window, policy.plan, policy.wait, str(policy.budget)) == ("Sat 02:00-04:00", "required", 5400, "2")


@pytest.mark.parametrize("name", sorted(load.known_skus()))
def test_every_shipped_sku_reads(name: str) -> None:
    sku = load.sku(name)
    assert sku.slots("gpu") == tuple(f"gpu{index}" for index in range(len(sku.gpus)))
