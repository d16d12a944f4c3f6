"""`lockstep up` and plain `pulumi` on real lab nodes: three ways, one state, and what kills leave behind."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import faults, testing

pytestmark = [pytest.mark.lab, pytest.mark.engine]

LOCKSTEP = Path(sys.executable).with_name("lockstep")
MINUTES = 60.0


@dataclass
class Environment:
    """A lab, and a copy of the checkout whose stack files belong to the test."""

    lab: testing.FreshLab
    checkout: Path
    variables: dict[str, str]
    fleet: str

    def start(self, *command: str | Path, **more: str) -> subprocess.Popen[str]:
        """Start a program in the checkout."""
        return subprocess.Popen(
            [str(word) for word in command],
            env={**self.variables, **more},
            cwd=self.checkout,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str | Path, expect: int = 0, **more: str) -> str:
        """Run it to its end; its output."""
        process = self.start(*command, **more)
        output, _ = process.communicate(timeout=15 * MINUTES)
        assert process.returncode == expect, output
        return output

    def up(self, *words: str, expect: int = 0) -> str:
        """`lockstep up` of the fleet."""
        return self.run(LOCKSTEP, "up", self.fleet, *words, expect=expect)

    def plain(self, words: str, expect: int = 0, **more: str) -> str:
        """Plain `pulumi WORDS` after `eval "$(lockstep env …)"`, in a shell, as the README says."""
        script = f'eval "$({LOCKSTEP} env {shlex.quote(self.fleet)})" && exec pulumi --non-interactive {words}'
        return self.run("bash", "-c", script, expect=expect, **more)


@pytest.fixture
def environment(copied: Path, tmp_path: Path) -> Iterator[Environment]:
    """Two nodes without a cluster; nothing has been done to them yet."""
    with testing.fresh_lab(tmp_path, nodes=2) as lab:
        yield Environment(lab, copied, {**lab.env, "LOCKSTEP_ROOT": str(copied)}, str(lab.fleet_file))


def boots(lab: testing.FreshLab) -> dict[str, str | None]:
    """Node → boot id: whoever rebooted one changed it."""
    return {node: lab.boot_id(node) for node in lab.nodes}


def test_up_then_plain_pulumi_on_the_same_state_then_each_kind_of_drift(environment: Environment) -> None:
    lab, name = environment.lab, environment.lab.name
    first, second = lab.nodes
    before = environment.run("git", "-C", Path(__file__).parents[2], "status", "--short", "stacks")
    environment.up()
    settled = boots(lab)
    unchanged = environment.plain(f"up -s {name} --yes --skip-preview --expect-no-changes")
    assert "3 unchanged" in unchanged
    assert boots(lab) == settled

    lab.break_node(second, faults.Kind.GPU_FIRMWARE, slot="gpu1")
    lab.break_node(first, faults.Kind.NODE_DEAD)
    shown = environment.plain(f"preview -s {name} --diff")
    assert f"+ {second}: {{" in shown
    assert "firmware.gpu[gpu1]@running" in shown
    assert f"+ {first}: {{" in shown
    assert "unreachable" in shown
    said = environment.up(expect=1)
    assert second in said
    assert "warning" in environment.plain(f"up -s {name} --yes --skip-preview")

    lab.mend_node(first)
    lab.mend_node(second)
    environment.up()
    environment.plain(f"preview -s {name} --expect-no-changes")
    assert before == environment.run("git", "-C", Path(__file__).parents[2], "status", "--short", "stacks")


def test_a_destroyed_stack_leaves_its_machines_as_they_are(environment: Environment) -> None:
    environment.up()
    settled = boots(environment.lab)
    environment.plain(f"destroy -s {environment.lab.name} --yes --skip-preview")
    assert boots(environment.lab) == settled
    for node in environment.lab.nodes:
        environment.lab.run(node, "test", "-f", "/var/lib/lockstep/admission.json")
    environment.up()
    assert boots(environment.lab) == settled


def engine_of(parent: int) -> int:
    """The pid of the engine that runs `up` below a `lockstep up`."""
    limit = time.monotonic() + MINUTES
    while time.monotonic() < limit:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            for child in children.read_text().split():
                words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                if b"up" in words and Path(os.fsdecode(words[0])).name == "pulumi":
                    return int(child)
        time.sleep(0.05)
    raise AssertionError("no engine was started")


def wait_until(what: str, done: object, seconds: float) -> None:
    """Until ``done()`` is true."""
    assert callable(done)
    limit = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < limit, f"{what} did not happen"
        time.sleep(0.2)


def installing(lab: testing.FreshLab) -> bool:
    """Whether packages of the lock are on the first node; reboot, verify and admit are still to come."""
    return lab.run(lab.nodes[0], "dpkg-query", "-W", "libnccl2", check=False).returncode == 0


@pytest.mark.parametrize("victim", ["engine", pytest.param("lockstep", marks=pytest.mark.slow)])
def test_after_a_sigkill_in_the_middle_the_same_command_ends_in_step(environment: Environment, victim: str) -> None:
    lab = environment.lab
    running = environment.start(LOCKSTEP, "up", environment.fleet)
    wait_until("the first install", lambda: installing(lab), 5 * MINUTES)
    engine = engine_of(running.pid)
    os.kill(engine if victim == "engine" else running.pid, signal.SIGKILL)
    running.communicate(timeout=MINUTES)
    wait_until("the engine's end", lambda: not Path(f"/proc/{engine}").exists(), MINUTES)
    said = environment.up()
    assert "removed the stack lock of an engine that is dead" in said
    for node in lab.nodes:
        lab.run(node, "test", "-f", "/var/lib/lockstep/admission.json")
    settled = boots(lab)
    environment.plain(f"up -s {lab.name} --yes --skip-preview --expect-no-changes")
    assert boots(lab) == settled


def test_no_secret_is_in_state_output_or_argv(environment: Environment) -> None:
    output = environment.up()
    secret = (environment.lab.state / "ssh" / "id_ed25519").read_text().splitlines()[1]
    state = "".join(
        path.read_text(errors="replace") for path in (environment.lab.state / "pulumi").rglob("*") if path.is_file()
    )
    assert "lockstep:fleet:NodePool" in state
    assert secret not in state
    assert secret not in output


def test_a_word_that_is_none_is_refused_before_the_engine_starts(environment: Environment) -> None:
    said = environment.up("--allow", "everything", expect=2)
    assert "'everything' is no kind of disruption" in said
    assert not (environment.lab.state / "pulumi").exists()


def test_a_lab_that_is_down_is_an_error_at_once_with_its_remedy(environment: Environment) -> None:
    environment.lab.down()
    said = environment.up(expect=2)
    assert f"lab {environment.lab.name} is not running" in said
    assert f"lockstep lab up {environment.lab.name}" in said
