"""`lockstep up` and plain `pulumi` on nine real nodes and a cluster: kills, drift of every kind, pools that go.

One lab, in this order: each test goes on where the one before it stopped.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import faults, testing
from lockstep.base import journal
from tests.bringup import acting

from .breaks import CASES, DEFAULT, QUIET, Case, blocks
from .conftest import copy_of
from .environments import LOCKSTEP, Environment, Watch, acting_below, engine_of, gone, kill, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.cluster, pytest.mark.engine, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Iterator[Environment]:
    """Nine fresh nodes in two pools, and a stack file that was committed as the one of `lab` is."""
    folder = tmp_path_factory.mktemp("up")
    pools = [
        testing.LabPool(DEFAULT, nodes=6, domain="r1", wait="5s"),
        testing.LabPool(QUIET, nodes=3, domain="r2", allow="", wait="5s"),
    ]
    copied = copy_of(checkout, folder / "check out")
    with testing.fresh_lab(folder, pools=pools, control_plane=True) as lab:
        found = Environment(lab, copied, {**lab.env, "LOCKSTEP_ROOT": str(copied)}, str(lab.fleet_file))
        stack = yaml.safe_load((checkout / "stacks" / "Pulumi.lab.yaml").read_text())
        stack["config"]["lockstep:fleet"] = found.fleet
        (copied / "stacks" / f"Pulumi.{lab.name}.yaml").write_text(yaml.safe_dump(stack))
        (copied / ".gitignore").write_text("__pycache__/\n")
        for words in ("init -q", "add -A", "-c user.name=t -c user.email=t@example.org commit -qm first"):
            found.run("git", *words.split())
        yield found


@pytest.fixture(scope="module")
def watch(environment: Environment) -> Watch:
    """What was seen of processes and boots until the fleet was in step."""
    return Watch(environment.lab)


def installing(lab: testing.FreshLab) -> bool:
    """Whether a node has packages of the lock while its driver stage goes on."""
    with acting.book(lab) as book:
        working = [attempt.node for attempt in book.runs.attempts() if attempt.stage == "driver"]
    return any(acting.package(lab, node, "libnccl2").startswith(("ii", "hi")) for node in working)


def test_an_engine_killed_while_packages_are_installed_takes_all_its_children_along(
    environment: Environment, watch: Watch
) -> None:
    lab = environment.lab
    with watch:
        running = environment.start(LOCKSTEP, "up", environment.fleet)
        wait_until("the first install", lambda: installing(lab))
        kill(engine_of(running.pid))
        running.communicate()
    assert running.returncode == 5
    with acting.book(lab) as book:
        assert {attempt.stage for attempt in book.runs.interrupted().values()} == {"driver"}
        assert book.admissions() == {}


def test_plain_pulumi_names_cancel_after_which_it_goes_on_and_is_killed_as_well(
    environment: Environment, watch: Watch
) -> None:
    lab = environment.lab
    with watch:
        assert "pulumi cancel" in environment.plain(f"up -s {lab.name} --yes --skip-preview", expect=None)
        environment.plain(f"cancel -s {lab.name} --yes")
        running = environment.start(*environment.shell(f"up -s {lab.name} --yes --skip-preview"))
        wait_until("the first reboot", lambda: any(len(boots) > 1 for boots in watch.boots.values()))
        kill(running.pid)
        running.communicate()
    with acting.book(lab) as book:
        assert set(book.admissions()) < set(lab.nodes)


def test_a_killed_lockstep_up_ends_its_engine_and_all_below_it(environment: Environment, watch: Watch) -> None:
    lab = environment.lab
    with watch:
        running = environment.start(LOCKSTEP, "up", environment.fleet)
        with acting.book(lab) as book:
            wait_until("an admission", lambda: any(one.stage == "admit" for one in book.runs.attempts()))
        below = acting_below(engine_of(running.pid))
        os.kill(running.pid, signal.SIGKILL)
        gone(below)
        running.communicate()


def test_the_same_command_then_ends_in_step_and_nothing_was_done_twice(environment: Environment, watch: Watch) -> None:
    lab = environment.lab
    with watch:
        said = environment.up()
    assert "removed the stack lock of an engine that is dead" in said
    assert "admit: " in said, "the stages show in the engine's own display"
    with acting.book(lab) as book:
        assert book.runs.interrupted() == {}
        assert book.fences() == {}
        done = Counter(
            (one.node, one.stage) for one in book.runs.attempts() if one.outcome is journal.AttemptOutcome.DONE
        )
    assert {node: done[node, "admit"] for node in lab.nodes} == dict.fromkeys(lab.nodes, 1)
    assert {node: count for (node, stage), count in done.items() if stage == "driver" and count > 1} == {}
    assert {node: len(boots) for node, boots in watch.boots.items()} == dict.fromkeys(lab.nodes, 2), (
        "every node was rebooted once, whatever was killed"
    )
    assert {node["verdict"] for node in environment.audit().values()} == {"admit"}


def secrets(environment: Environment) -> dict[str, str]:
    """What → text that may be in nothing that is kept, said or started."""
    lab = environment.lab
    found = {f"token of {node}": (lab.state / "node-tokens" / node).read_text().strip() for node in lab.nodes}
    user = yaml.safe_load(lab.kubeconfig.read_text())["users"][0]["user"]
    found |= {f"administrator's {name}": text for name, text in user.items() if "data" in name or name == "token"}
    found["private key"] = (lab.state / "ssh" / "id_ed25519").read_text().splitlines()[1]
    assert all(len(text) > 15 for text in found.values())
    assert len(found) > len(lab.nodes) + 1
    return found


def test_no_secret_was_in_any_processs_arguments(environment: Environment, watch: Watch) -> None:
    seen = b"\n".join(watch.arguments)
    for program in (b"pulumi", b"stacks.provider", b"ansible-playbook", b"apt-get", b"/sh\0-c\0"):
        assert program in seen, f"no process of {program!r} was seen: too few looks"
    assert [what for what, text in secrets(environment).items() if text.encode() in seen] == []


def test_no_secret_is_in_state_journal_snapshots_or_the_most_talkative_log(environment: Environment) -> None:
    lab = environment.lab
    said = environment.plain(f"preview -s {lab.name} --logtostderr --logflow -v=9 --expect-no-changes")
    assert "lockstep:fleet:NodePool" in said
    kept = {"log": said.encode(), "export": environment.exported().encode()}
    for path in [*(lab.state / "pulumi").rglob("*"), *lab.state.glob("journal.db*"), *lab.state.rglob("*.jsonl*")]:
        if path.is_file():
            content = path.read_bytes()
            kept[str(path.relative_to(lab.state))] = gzip.decompress(content) if path.suffix == ".gz" else content
    assert {name.partition("/")[0] for name in kept} >= {"log", "export", "pulumi", "journal.db", "snapshots"}
    assert str(lab.kubeconfig).encode() in kept["export"], "the path, not the content"
    found = [
        (where, what)
        for where, text in kept.items()
        for what, one in secrets(environment).items()
        if one.encode() in text
    ]
    assert found == []


def test_plain_pulumi_on_the_same_state_changes_nothing_and_git_sees_no_change(environment: Environment) -> None:
    before = environment.machines()
    said = environment.plain(f"up -s {environment.lab.name} --yes --skip-preview --expect-no-changes")
    assert "unchanged" in said
    assert environment.machines() == before
    assert environment.run("git", "status", "--porcelain") == ""
    assert environment.run("git", "ls-files", f"stacks/Pulumi.{environment.lab.name}.yaml") != ""


FORBIDDEN = 2
"""Node of the quiet pool that gets another version as well: its policy allows no install."""


@dataclass(frozen=True)
class Broken:
    """The fleet with every kind of fault at once, as preview and audit see it."""

    lab: testing.FreshLab
    shown: Mapping[str, str]
    """Node → its lines in the preview."""
    audited: Mapping[str, Mapping[str, Any]]

    def node(self, case: Case) -> str:
        """Its name."""
        return self.lab.pools[case.pool][case.at]

    @property
    def forbidden(self) -> str:
        """The node whose drift may not be mended."""
        return self.lab.pools[QUIET][FORBIDDEN]


@pytest.fixture(scope="module")
def broken(environment: Environment) -> Iterator[Broken]:
    """Every node has a fault of its own; mended at the end, whatever was mended before, unless the lab is down."""
    lab = environment.lab
    for kind, case in CASES.items():
        lab.break_node(lab.pools[case.pool][case.at], faults.Kind(kind), **case.options)
    lab.break_node(lab.pools[QUIET][FORBIDDEN], faults.Kind.OTHER_VERSION)
    # At the same time: each waits long for the node that says nothing.
    with ThreadPoolExecutor(1) as pool:
        audited = pool.submit(environment.audit, 1)
        shown = environment.plain(f"preview -s {lab.name} --diff")
    yield Broken(lab, blocks(shown), audited.result())
    if any(map(lab.alive, lab.nodes)):
        for node in lab.nodes:
            lab.mend_node(node)


@pytest.mark.parametrize("kind", CASES)
def test_a_preview_names_node_coordinate_expected_and_observed_or_the_reason(broken: Broken, kind: str) -> None:
    case = CASES[kind]
    expected = "" if case.expected is None else rf".* \((pinned|expected) {case.expected}\)"
    assert re.search(rf'^{case.word}\s*: ".*{case.observed}{expected}', broken.shown[broken.node(case)], re.MULTILINE)


@pytest.mark.parametrize("kind", CASES)
def test_an_audit_names_node_coordinate_expected_and_observed_or_the_reason(broken: Broken, kind: str) -> None:
    case = CASES[kind]
    node = broken.audited[broken.node(case)]
    assert node["verdict"] == case.verdict
    found = [
        finding
        for finding in node["findings"]
        if re.fullmatch(case.word, finding["coordinate"] or finding["id"])
        and re.search(case.observed, finding["observed"])
        and re.fullmatch(case.expected or ".*", finding["expected"])
    ]
    assert len(found) == 1, node["findings"]


def test_up_mends_what_the_policy_allows_and_says_what_it_may_not_or_cannot(
    environment: Environment, broken: Broken
) -> None:
    lab = environment.lab
    before = acting.boots(lab)
    said = " ".join(environment.up(expect=4).split())
    main, quiet = lab.pools[DEFAULT], lab.pools[QUIET]
    assert acting.package(lab, main[0], "libnccl2") == "hi 2.28.9-1+cuda13.0"
    assert acting.package(lab, main[1], "nvidia-kernel-open-dkms") == "hi 580.105.08-1"
    table = said[said.index("NOT IN STEP") :]
    assert main[0] not in table
    assert main[1] not in table
    for line in (
        f"{main[2]} unmended: firmware.gpu[gpu1]@running",
        f"{main[3]} unmended: gpu[gpu2]@running: missing",
        f"{main[4]} unreachable: no banner",
        f"{main[5]} unreachable: refused",
        f"{quiet[0]} unreachable: host key changed",
        f"{quiet[1]} unreadable: ",
        f"{quiet[2]} forbidden: has an admission file; needs drain, install, which neither the pool's policy nor",
    ):
        assert line in table
    assert acting.package(lab, broken.forbidden, "libnccl2").startswith("hi 2.30.7")
    assert acting.boots(lab) == before, "what was loaded at the last boot is the lock's: nothing needed a reboot"


def test_a_word_for_one_run_lets_plain_pulumi_mend_the_rest_and_what_it_cannot_is_a_warning(
    environment: Environment, broken: Broken
) -> None:
    lab = environment.lab
    firmware = broken.node(CASES["gpu-firmware"])
    for node in lab.nodes:
        if node not in (firmware, broken.forbidden):
            lab.mend_node(node)
    word = f"drain={broken.forbidden},install={broken.forbidden}"
    said = environment.plain(f"up -s {lab.name} --yes --skip-preview", LOCKSTEP_ALLOW=word)
    assert f"warning: {firmware}: unmended: firmware.gpu[gpu1]@running" in said
    assert acting.package(lab, broken.forbidden, "libnccl2") == "hi 2.28.9-1+cuda13.0"
    lab.mend_node(firmware)
    environment.up()
    environment.plain(f"preview -s {lab.name} --expect-no-changes")
    assert {node["verdict"] for node in environment.audit().values()} == {"admit"}
    with acting.book(lab) as book:
        assert book.fences() == {}


def without(text: str, *nodes: str) -> str:
    """The fleet file's text with these nodes left out."""
    kept = [line for line in text.splitlines() if not line.strip().startswith(tuple(f"{node}:" for node in nodes))]
    return "\n".join(kept) + "\n"


@contextmanager
def edited(environment: Environment, change: Callable[[str], str]) -> Iterator[None]:
    """The fleet file changed; as it was at the end. Inside, no machine, Node or retained object changes."""
    file = environment.lab.fleet_file
    text = file.read_text()
    before, kept = environment.machines(), environment.kept()
    changed = change(text)
    assert changed != text
    file.write_text(changed)
    try:
        yield
        assert environment.machines() == before
        assert environment.kept() == kept
    finally:
        file.write_text(text)


def pools_in_state(environment: Environment) -> dict[str, set[str]]:
    """Pool → its nodes, as the engine's state has them."""
    resources = json.loads(environment.exported())["deployment"].get("resources", [])
    found = [one["inputs"] for one in resources if one["type"] == "lockstep:fleet:NodePool"]
    return {one["pool"]: set(one["nodes"]) for one in found}


def test_a_pool_that_loses_two_of_six_is_refused_both_ways_until_the_number_is_repeated(
    environment: Environment,
) -> None:
    name, main = environment.lab.name, environment.lab.pools[DEFAULT]
    with edited(environment, lambda text: without(text, *main[4:])):
        refused = environment.up(expect=4)
        plain = environment.plain(f"up -s {name} --yes --skip-preview", expect=None)
        other = environment.up("--shrink", "1", expect=4)
        for said in (refused, plain, other):
            assert "--shrink 2" in said
        assert pools_in_state(environment)[DEFAULT] == set(main)
        environment.plain(f"up -s {name} --yes --skip-preview", LOCKSTEP_SHRINK="2")
        assert pools_in_state(environment)[DEFAULT] == set(main[:4])
    environment.up()
    assert pools_in_state(environment)[DEFAULT] == set(main)


def test_a_renamed_pool_touches_no_machine(environment: Environment) -> None:
    with edited(environment, lambda text: text.replace(f"- name: {QUIET}\n", "- name: renamed\n")):
        environment.up()
        assert pools_in_state(environment) == {
            DEFAULT: set(environment.lab.pools[DEFAULT]),
            "renamed": set(environment.lab.pools[QUIET]),
        }


def test_a_removed_pool_touches_no_machine(environment: Environment) -> None:
    with edited(environment, lambda text: text[: text.index(f"  - name: {QUIET}\n")]):
        environment.plain(f"up -s {environment.lab.name} --yes --skip-preview")
        assert set(pools_in_state(environment)) == {DEFAULT}


def test_destroy_touches_no_machine_and_keeps_classes_and_definitions_and_up_takes_them_over(
    environment: Environment,
) -> None:
    before, kept = environment.machines(), environment.kept()
    assert {name.partition("/")[0] for name in kept} >= {"Namespace", "DeviceClass", "CustomResourceDefinition"}
    environment.plain(f"destroy -s {environment.lab.name} --yes --skip-preview")
    assert pools_in_state(environment) == {}
    assert environment.machines() == before
    assert environment.kept() == kept
    environment.up()
    assert environment.machines() == before
    assert environment.kept() == kept
    assert {node["verdict"] for node in environment.audit().values()} == {"admit"}


def test_a_lab_that_is_down_is_an_error_at_once_with_its_remedy(environment: Environment) -> None:
    environment.lab.down()
    for verb in ("up", "env"):
        said = environment.run(LOCKSTEP, verb, environment.fleet, expect=2)
        assert f"lab {environment.lab.name} is not running" in said
        assert f"lockstep lab up {environment.lab.name}" in said
