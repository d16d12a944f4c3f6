"""The lab's control plane, started for real: start, start again, kill, stop."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from lab import control_plane
from lab import control_plane_files as files
from lab import control_plane_ports as ports
from lab import control_plane_processes as processes
from lab import control_plane_programs as plans
from lockstep.base import errors
from lockstep.base import programs as programs_module

pytestmark = pytest.mark.cluster
NODES = ["gpu-001", "gpu-002"]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "lab"
    yield folder
    control_plane.stop(folder, lambda _: None)


def start(state: Path, nodes: list[str] = NODES) -> list[str]:
    said: list[str] = []
    control_plane.start(state, nodes, said.append, owner=os.getpid(), durable=False)
    return said


def pids(state: Path) -> dict[str, int | None]:
    return {program.name: program.pid for program in control_plane.status(state)}


def until(condition: Callable[[], bool], what: str, seconds: float = 180) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.1)


def ask(state: Path, path: str, token: str) -> httpx2.Response:
    import ssl

    endpoint = f"https://127.0.0.1:{ports.choose(state / 'control-plane', plans.PORTS)['kube-apiserver']}"
    context = ssl.create_default_context(cafile=str(state / "control-plane" / "pki" / "ca.crt"))
    with httpx2.Client(verify=context, trust_env=False) as client:
        return client.get(endpoint + path, headers={"Authorization": f"Bearer {token}"})


def test_it_starts_healthy_and_private_and_a_second_start_changes_nothing(state: Path) -> None:
    assert control_plane.status(state) == ()
    assert start(state)[-1].startswith("control plane is ready at https://127.0.0.1:")
    programs = control_plane.status(state)
    assert [program.name for program in programs] == list(plans.NAMES)
    assert all(program.healthy for program in programs), programs
    found = [path for path in state.rglob("*") if path.is_file() and "etcd" not in path.parts]
    secret = [path for path in found if path.name not in ("lock", "watcher.beat")]
    # Records of processes hold no secret; everything else is for the owner alone, and all folders are closed.
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret if path.parent.name != "pids"} == {0o600}
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    for program in programs:
        arguments = Path(f"/proc/{program.pid}/cmdline").read_text()
        assert control_plane.node_token(state, "gpu-001").get_secret_value() not in arguments
    kubectl = [str(programs_module.find("kubectl")), "--kubeconfig", str(control_plane.kubeconfig(state))]
    asked = subprocess.run([*kubectl, "auth", "whoami", "-o", "name"], capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    before = pids(state), control_plane.kubeconfig(state).read_text()
    assert start(state) == [f"control plane is ready at {_server(state)}"]
    assert (pids(state), control_plane.kubeconfig(state).read_text()) == before

    # ... and stops, every program by its pid, and starts again on the same ports.
    numbers = (state / "control-plane" / "ports.json").read_text()
    control_plane.stop(state, lambda _: None)
    assert all(program.pid is None for program in control_plane.status(state))
    assert all(processes.start_time(pid) is None for pid in before[0].values() if pid)
    control_plane.stop(state, lambda _: None)
    start(state)
    assert (state / "control-plane" / "ports.json").read_text() == numbers
    assert control_plane.kubeconfig(state).read_text() == before[1]


def _server(state: Path) -> str:
    return f"https://127.0.0.1:{ports.choose(state / 'control-plane', plans.PORTS)['kube-apiserver']}"


def test_a_killed_program_is_reported_and_started_again_alone(state: Path) -> None:
    start(state)
    before = pids(state)
    victim = before["kube-controller-manager"]
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    until(lambda: pids(state)["kube-controller-manager"] is None, "the killed program still counts as running")
    down = {program.name: program.detail for program in control_plane.status(state) if not program.healthy}
    assert down == {"kube-controller-manager": "does not run"}
    start(state)
    after = pids(state)
    assert {name for name in after if after[name] != before[name]} == {"kube-controller-manager"}


def test_a_new_node_gets_a_token_by_a_restart_of_the_api_server_and_its_clients(state: Path) -> None:
    start(state)
    before = pids(state)
    old = control_plane.node_token(state, "gpu-001").get_secret_value()
    gone = control_plane.node_token(state, "gpu-002").get_secret_value()
    start(state, ["gpu-001", "gpu-003"])
    after = pids(state)
    assert {name for name in after if after[name] == before[name]} == {"watcher", "etcd"}
    assert all(program.healthy for program in control_plane.status(state))
    new = control_plane.node_token(state, "gpu-003").get_secret_value()
    assert ask(state, "/version", old).status_code == 200
    assert ask(state, "/version", new).status_code == 200
    assert ask(state, "/version", gone).status_code == 401
    with pytest.raises(errors.InputError, match="no token for node gpu-002"):
        control_plane.node_token(state, "gpu-002")


def test_etcd_answers_nobody_without_a_certificate(state: Path) -> None:
    start(state)
    port = ports.choose(state / "control-plane", plans.PORTS)["etcd"]
    for scheme in ("http", "https"):
        with httpx2.Client(verify=False, trust_env=False) as client, pytest.raises(httpx2.HTTPError):
            client.get(f"{scheme}://127.0.0.1:{port}/version").raise_for_status()


def test_a_port_taken_by_another_program_is_named_and_nothing_is_left_running(state: Path) -> None:
    numbers = ports.choose(_folder(state), plans.PORTS)
    with socket.socket() as taken:
        taken.bind((ports.HOST, numbers["kube-scheduler"]))
        taken.listen()
        with pytest.raises(errors.BusyError, match=f"of kube-scheduler is taken by pid {os.getpid()}"):
            start(state)
    assert all(program.pid is None for program in control_plane.status(state))
    start(state)


def _folder(state: Path) -> Path:
    folder = state / "control-plane"
    folder.mkdir(parents=True)
    return folder


def test_a_start_and_a_stop_at_once_do_not_mix(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = files.ensure_folder(files.ensure_folder(state) / "control-plane")
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.3)
    with files.locked(folder / "lock", "x"), pytest.raises(errors.BusyError, match="another process"):
        control_plane.stop(state, lambda _: None)


OWNED = """
import os, sys, time
from pathlib import Path
from lab import control_plane
say = lambda text: print(text, flush=True)
control_plane.start(Path(sys.argv[1]), ["gpu-001"], say, owner=os.getpid(), durable=False)
time.sleep(600)
"""


@pytest.mark.parametrize("word", ["starting kube-apiserver", "control plane is ready"])
def test_an_owner_that_is_killed_leaves_nothing_running(state: Path, word: str) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNED, str(state)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        for line in owner.stdout:
            if word in line:
                break
        running = {name: pid for name, pid in pids(state).items() if pid}
        assert "etcd" in running
        owner.kill()
    until(lambda: not any(pids(state).values()), f"still running after the owner was killed: {pids(state)}")


def test_a_start_that_was_killed_half_way_is_cleaned_and_completed_by_the_next(state: Path) -> None:
    code = OWNED.replace(", owner=os.getpid()", "")
    with subprocess.Popen([sys.executable, "-c", code, str(state)], stdout=subprocess.PIPE, text=True) as half:
        assert half.stdout is not None
        with contextlib.closing(half.stdout):
            for line in half.stdout:
                if "starting kube-apiserver" in line:
                    break
        half.kill()
    until(lambda: pids(state)["etcd"] is not None, "etcd of the killed start is not recognised")
    etcd = pids(state)["etcd"]
    start(state)
    assert all(program.healthy for program in control_plane.status(state))
    assert pids(state)["etcd"] == etcd
