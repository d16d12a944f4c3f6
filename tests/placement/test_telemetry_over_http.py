"""A real HTTP server, the agent as a process, and the driver's library played."""

# ruff: noqa: N802 - the made-up driver bears NVML's names
from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pynvml
import pytest
import uvicorn

from lockstep.base import errors
from placement import headroom, topology
from placement.agent import __main__ as agent
from placement.agent import pushing, sources
from placement.health.board import Board
from placement.telemetry import server
from placement.telemetry.samples import Dropped, Samples
from placement.telemetry.signals import Signal

ADDRESS = "127.0.0.1"
FLEET = topology.build([topology.NodeSpec(f"n{number}", 1, 1, 2, "H100") for number in range(3)])


class _Served(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        return


@pytest.fixture
def intake() -> Iterator[tuple[server.Intake, str]]:
    taken = server.Intake(FLEET, Samples(FLEET), headroom.Headroom(FLEET), Board(FLEET))
    with socket.socket() as listening:
        listening.bind((ADDRESS, 0))
        config = uvicorn.Config(server.application(taken, token="secret"), log_level="error", lifespan="off")
        served = _Served(config)
        thread = threading.Thread(target=served.run, kwargs={"sockets": [listening]})
        thread.start()
        while not served.started:
            time.sleep(0.01)
        yield taken, f"http://{ADDRESS}:{listening.getsockname()[1]}"
        served.should_exit = True
        thread.join()


def _client(address: str, token: str = "secret") -> httpx.Client:
    return httpx.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, trust_env=False, timeout=20)


def test_samples_and_events_arrive_and_bad_ones_are_counted(intake: tuple[server.Intake, str]) -> None:
    taken, address = intake
    now = time.time()
    body = {
        "node": "n1",
        "samples": [
            [0, "power", 650.0, now],
            [0, "power", 1.0, now + 3600],
            [5, "power", 1.0, now],
            [0, "colour", 1.0, now],
            [0, "power", "hot", now],
            [True, "power", 1.0, now],
        ],
        "events": [[1, "xid 79", now, None], [7, "xid 79", now, None]],
    }
    with _client(address) as client:
        assert client.post("/v1/samples", json=body).json() == {"accepted": 2, "dropped": 6}
        nan = json.dumps({"node": "n1", "samples": [[0, "power", float("nan"), now]]})
        assert client.post("/v1/samples", content=nan).json() == {"accepted": 0, "dropped": 1}
        metrics = client.get("/metrics").text
    assert taken.samples.value[1, 0, Signal.POWER] == 650.0
    assert taken.board.out[1].tolist() == [False, True]
    assert 'lockstep_samples_dropped_total{reason="future"} 1' in metrics
    assert taken.samples.dropped[Dropped.UNKNOWN_DEVICE] == 2
    assert taken.headroom.of_gpus(now)[1, 0] < 0.1


def test_numbers_beyond_all_measure_take_nothing_down(intake: tuple[server.Intake, str]) -> None:
    taken, address = intake
    now = time.time()
    with _client(address) as client:
        body = {"node": "n1", "samples": [[0, "hbm", 1e308, now], [0, "hbm", 10**400, now], [0, "power", 1.0, 10**400]]}
        assert client.post("/v1/samples", json=body).json() == {"accepted": 1, "dropped": 2}
    assert taken.headroom.of_gpus(now)[1, 0] == 0.0


def test_a_fault_with_a_wrong_clock_is_taken_and_does_not_switch_the_alarm_off() -> None:
    fleet = topology.build([topology.NodeSpec(f"n{number}", 1, 1, 2, "H100") for number in range(100)])
    taken = server.Intake(fleet, Samples(fleet), headroom.Headroom(fleet), Board(fleet), clock=lambda: 1000.0)
    for number, at in enumerate((1e12, float("nan"), float("-inf"), 1000.0, 1000.0, 1000.0)):
        assert taken.take({"node": f"n{number}", "events": [[0, "xid 54", at, None]]}) == {"accepted": 1, "dropped": 0}
    assert taken.board.alarms == {"xid 54": 5}
    assert taken.restamped == 3
    assert "lockstep_events_restamped_total 3" in taken.metrics()


@pytest.mark.parametrize("body", ["", "[]", '{"node": 1}', '{"node": "n1", "samples": 3}', "{" * 5000])
def test_a_body_of_another_shape_is_refused(intake: tuple[server.Intake, str], body: str) -> None:
    with _client(intake[1]) as client:
        assert client.post("/v1/samples", content=body).status_code == 400


def test_without_the_token_nothing_is_taken(intake: tuple[server.Intake, str]) -> None:
    with _client(intake[1], "wrong") as client:
        assert client.post("/v1/samples", json={"node": "n1", "samples": []}).status_code == 401


def test_a_flood_is_refused(intake: tuple[server.Intake, str]) -> None:
    with _client(intake[1]) as client:
        assert client.post("/v1/samples", content=b"x" * (server.LARGEST_BODY + 1)).status_code == 413


def test_the_agent_replays_a_recording_into_the_intake(intake: tuple[server.Intake, str], tmp_path: Path) -> None:
    taken, address = intake
    rounds = [
        [[gpu, name, 40.0 + turn, float(turn)] for gpu in (0, 1) for name in ("health", "power")] for turn in range(3)
    ]
    recording = tmp_path / "trace.jsonl"
    recording.write_text("\n".join(json.dumps(item) for item in rounds))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "placement.agent",
            "--to",
            address,
            "--node",
            "n2",
            "--trace",
            str(recording),
            "--seconds",
            "0",
        ],
        env={**os.environ, "LOCKSTEP_TELEMETRY_TOKEN": "secret"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert taken.samples.value[2, 1, Signal.POWER] == 42.0
    assert taken.accepted == 12


class _Nvml:
    """The driver's library as NVIDIA documents it, with two GPUs; names and numbers are those of nvidia-ml-py."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self.xids: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)  # constants; a name that the library does not have fails here

    def _here(self, handle: int) -> None:
        if handle in self.lost:
            raise self.NVMLError("GPU is lost")

    def nvmlInit(self) -> None:
        return

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetIndex(self, handle: int) -> int:
        self._here(handle)
        return handle

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        self._here(handle)
        return 60 + handle

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._here(handle)
        return 500_000

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        self._here(handle)
        return types.SimpleNamespace(used=20, total=80)

    def nvmlDeviceGetPcieThroughput(self, handle: int, direction: int) -> int:
        self._here(handle)
        return (3_000_000, 7_000_000)[direction]

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[int]) -> Any:
        self._here(handle)
        known = {pynvml.NVML_FI_DEV_MEMORY_TEMP: 70, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: 1}
        return [
            types.SimpleNamespace(nvmlReturn=0, value=types.SimpleNamespace(uiVal=known[field])) for field in fields
        ]

    def nvmlEventSetCreate(self) -> str:
        return "set"

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, events: str) -> None:
        assert (kinds, events) == (pynvml.nvmlEventTypeXidCriticalError, "set")

    def nvmlEventSetWait_v2(self, events: str, milliseconds: int) -> Any:
        if not self.xids:
            raise self.NVMLError("Timeout")
        gpu, code = self.xids.pop(0)
        return types.SimpleNamespace(device=gpu, eventData=code)


def test_the_agent_reads_every_signal_and_xids_of_nvml_into_gates(intake: tuple[server.Intake, str]) -> None:
    taken, address = intake
    driver = _Nvml()
    source = sources.Nvml(nvml=driver)
    with _client(address) as client:
        pusher = pushing.Pusher(client, "n1")
        assert pusher.push(source.read())
        values = taken.samples.value[1, 1]
        assert {signal: values[signal] for signal in Signal if signal not in (Signal.HEALTH, Signal.NIC)} == {
            Signal.CORE_TEMPERATURE: 61.0,
            Signal.MEMORY_TEMPERATURE: 70.0,
            Signal.POWER: 500.0,
            Signal.HBM: 0.25,
            Signal.PCIE: 7000.0,
        }
        driver.xids = [(0, 79), (1, 4242), (1, 13)]
        assert pusher.push(source.read())
    assert taken.board.out[1].tolist() == [True, True]
    assert "the GPU's recovery action is gpu-reset" in taken.board.cause(1, 1)
    assert not taken.samples.dropped


def test_an_event_that_nobody_took_is_told_again_and_a_lost_gpu_ends_no_agent(
    intake: tuple[server.Intake, str],
) -> None:
    taken, address = intake
    driver = _Nvml()
    source = sources.Nvml(nvml=driver)
    driver.lost, driver.xids = {0, 1}, [(0, 79)]
    with _client(address, "wrong") as client:
        pusher = pushing.Pusher(client, "n1")
        assert not pusher.push(source.read())
        client.headers["authorization"] = "Bearer secret"
        found = source.read()
        assert found == sources.Round()
        assert pusher.push(found)
        assert pusher.push(found)
    assert taken.board.node_out.tolist() == [False, True, False]
    assert int(taken.board.history[1]) == 1
    assert np.isinf(taken.samples.at[1]).all()


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--to", "nowhere"], 2, "--to: not an address"),
        (["--to", "http://[::1"], 2, "--to: not an address"),
        (["--to", f"http://{ADDRESS}:1", "--seconds", "-1"], 2, "seconds between rounds"),
        (["--to", f"http://{ADDRESS}:1", "--seconds", "nan"], 2, "seconds between rounds"),
    ],
)
def test_the_agent_refuses_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, complaint: str
) -> None:
    (tmp_path / "trace").write_text('[[0, "power", 1.0, 0.0]]\n')
    try:
        found = agent.main([*words, "--trace", str(tmp_path / "trace")])
    except SystemExit as leaving:
        found = int(str(leaving.code))
    assert found == code
    assert complaint in capsys.readouterr().err


def test_an_agent_whose_intake_is_gone_says_so_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text('{"samples": [[0, "power", 1.0, 0.0]], "events": [[0, "xid 79", 0, null]]}\n')
    words = ["--to", f"http://{ADDRESS}:1", "--trace", str(tmp_path / "trace"), "--seconds", "0"]
    assert agent.main(words) == errors.ExitCode.NOT_MEASURED


def test_without_a_gpu_and_a_recording_the_agent_says_what_to_do() -> None:
    if Path("/proc/driver/nvidia").is_dir():
        pytest.skip("this machine has an NVIDIA driver")
    with pytest.raises(errors.NotMeasuredError) as caught:
        sources.Nvml()
    assert caught.value.hint == "--trace FILE replays one"


@pytest.mark.parametrize(
    "line",
    [
        '[[0, "power"]]',
        '[[0.5, "power", 1.0, 0.0]]',
        '[[0, "power", NaN, 0.0]]',
        '{"samples": 3}',
        "3",
        '{"events": []}',
    ],
)
def test_a_broken_recording_names_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "x").write_text(f'[[0, "power", 1.0, 0.0]]\n{line}\n')
    with pytest.raises(errors.InputError) as caught:
        sources.Recorded(tmp_path / "x")
    assert str(caught.value.place).endswith("x:2")
