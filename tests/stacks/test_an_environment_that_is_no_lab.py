"""A fleet file with SSH hosts and a kubeconfig, both ways: here they are a lab's, and nothing of ours knows it.

One place, in this order: each test goes on where the one before it stopped.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import testing
from lockstep.base import journal

from .conftest import copy_of
from .environments import Environment

pytestmark = [pytest.mark.lab, pytest.mark.cluster, pytest.mark.engine, pytest.mark.timeout(1800)]

UNVERIFIED = "lockstep.dev/unverified"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of everything here."""
    return tmp_path_factory.mktemp("strange")


@pytest.fixture(scope="module")
def hosts(folder: Path) -> Iterator[testing.FreshLab]:
    """Two machines and a control plane, which the fleet file knows by paths and addresses alone."""
    labs = str(folder / "labs")
    with testing.fresh_lab(
        folder, nodes=2, control_plane=True, edit=lambda text: text.replace("$LOCKSTEP_LABS", labs)
    ) as lab:
        assert "$LOCKSTEP" not in lab.fleet_file.read_text()
        yield lab


def place(hosts: testing.FreshLab, checkout: Path, folder: Path, name: str) -> Environment:
    """A clone and a state folder of its own, with what an environment needs that is no lab."""
    variables = {name: value for name, value in hosts.env.items() if not name.startswith(("LOCKSTEP_", "PULUMI_"))}
    copied = copy_of(checkout, folder / name / "check out")
    variables |= {
        "LOCKSTEP_ROOT": str(copied),
        "LOCKSTEP_LABS": str(folder / "no labs here"),
        "LOCKSTEP_STATE": str(folder / name / "state of its own"),
        "LOCKSTEP_NODE_TOKENS": str(hosts.state / "node-tokens"),
        "KUBECONFIG": str(hosts.kubeconfig),
    }
    return Environment(hosts, copied, variables, str(hosts.fleet_file))


@pytest.fixture(scope="module")
def strange(hosts: testing.FreshLab, checkout: Path, folder: Path) -> Environment:
    """The first place."""
    return place(hosts, checkout, folder, "first")


def state_of(environment: Environment) -> Path:
    """Its state folder."""
    return Path(environment.variables["LOCKSTEP_STATE"])


def test_up_brings_the_hosts_into_step_and_into_the_cluster_with_the_state_at_the_url_that_was_given(
    strange: Environment, folder: Path
) -> None:
    backend = folder / "a backend"
    backend.mkdir()
    strange.variables["PULUMI_BACKEND_URL"] = f"file://{backend}"
    strange.up()
    nodes = {one["metadata"]["name"]: one for one in strange.objects("nodes")}
    assert set(nodes) == set(strange.lab.nodes)
    for node in nodes.values():
        assert UNVERIFIED not in [taint["key"] for taint in node["spec"].get("taints", [])]
        assert len(node["metadata"]["annotations"]["lockstep.dev/lock-digest"]) == 64
    assert list((backend / ".pulumi" / "stacks").rglob("*.json")), "the stack lies where it was told to"
    assert [path for path in (state_of(strange) / "pulumi").rglob("*") if path.is_file()] == []
    assert not (strange.lab.state / "pulumi").exists(), "the lab's own folder is not known"
    assert not (strange.lab.state / "journal.db").exists()


def test_plain_pulumi_goes_on_with_the_same_state(strange: Environment) -> None:
    before = strange.machines()
    strange.plain(f"up -s {strange.lab.name} --yes --skip-preview --expect-no-changes")
    assert strange.machines() == before


def test_without_a_url_plain_pulumi_makes_the_stack_in_the_local_folder_and_touches_nothing(
    strange: Environment,
) -> None:
    before, kept = strange.machines(), strange.kept()
    del strange.variables["PULUMI_BACKEND_URL"]
    strange.plain(f"up -s {strange.lab.name} --yes --skip-preview")
    assert list((state_of(strange) / "pulumi").rglob(f"{strange.lab.name}.json"))
    assert strange.machines() == before
    assert strange.kept() == kept
    strange.up()
    assert strange.machines() == before


@pytest.mark.parametrize("way", ["lockstep up", "pulumi up"])
def test_a_fresh_clone_with_an_empty_journal_adopts_the_fleet_and_disturbs_nothing(
    hosts: testing.FreshLab, strange: Environment, checkout: Path, folder: Path, way: str
) -> None:
    before, kept = strange.machines(), strange.kept()
    fresh = place(hosts, checkout, folder, way.partition(" ")[0])
    said = fresh.up() if way == "lockstep up" else fresh.plain(f"up -s {hosts.name} --yes --skip-preview")
    for node in hosts.nodes:
        assert f"{node}: adopted on lock" in said
    assert fresh.machines() == before
    assert fresh.kept() == kept
    with journal.Journal(state_of(fresh) / "journal.db", hosts.name) as book:
        assert set(book.admissions()) == set(hosts.nodes)
        assert book.runs.attempts() == []
    fresh.plain(f"preview -s {hosts.name} --expect-no-changes")


def test_no_token_is_in_any_of_these_places(hosts: testing.FreshLab, strange: Environment, folder: Path) -> None:
    tokens = [path.read_bytes().strip() for path in (hosts.state / "node-tokens").iterdir()]
    assert len(tokens) == 2
    places = [folder / "a backend", *(folder / name / "state of its own" for name in ("first", "lockstep", "pulumi"))]
    read = 0
    for path in (path for place in places for path in place.rglob("*") if path.is_file()):
        content = path.read_bytes()
        kept = gzip.decompress(content) if path.suffix == ".gz" else content
        assert not [token for token in tokens if token in kept], path
        read += 1
    assert read > 10
