"""A real HTTP server, the agent as a process, and a real Prometheus where Debian's package is installed."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from lockstep.base import errors
from placement import headroom, topology
from placement.agent import sources
from placement.health.board import Board
from placement.telemetry import prometheus, server
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


def test_without_a_gpu_and_a_recording_the_agent_says_what_to_do() -> None:
    if Path("/proc/driver/nvidia").is_dir():
        pytest.skip("this machine has an NVIDIA driver")
    with pytest.raises(errors.NotMeasuredError) as caught:
        sources.Nvml()
    assert caught.value.hint == "--trace FILE replays one"


def test_a_broken_recording_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('[[0, "power", 1.0, 0.0]]\n[[0, "power"]]\n')
    with pytest.raises(errors.InputError) as caught:
        sources.Recorded(tmp_path / "x")
    assert str(caught.value.place).endswith("x:2")


class _Exporter(http.server.BaseHTTPRequestHandler):
    """What dcgm-exporter prints, for Prometheus to scrape."""

    def do_GET(self) -> None:
        lines = [
            f'DCGM_FI_DEV_{name}{{Hostname="{host}",gpu="{gpu}"}} {value}'
            for host, gpu in (("n0", 0), ("n0", 1), ("stranger", 0), ("n1", 9))
            for name, value in (("GPU_TEMP", 60 + gpu), ("POWER_USAGE", 500), ("FB_USED", 30), ("FB_FREE", 10))
        ]
        body = ("\n".join(lines) + "\n").encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        return


@pytest.fixture
def real_prometheus(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Debian's package prometheus is not installed")
    exporter = http.server.ThreadingHTTPServer((ADDRESS, 0), _Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        port = probe.getsockname()[1]
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: dcgm\n    static_configs:\n"
        f"      - targets: ['{ADDRESS}:{exporter.server_port}']\n"
    )
    process = subprocess.Popen(
        [
            program,
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address={ADDRESS}:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://{ADDRESS}:{port}"
    finally:
        process.terminate()
        process.wait()
        exporter.shutdown()
        exporter.server_close()


@pytest.mark.debian
def test_p95_comes_from_a_real_prometheus(real_prometheus: str) -> None:
    with httpx.Client(base_url=real_prometheus, trust_env=False, timeout=20) as client:
        reader = prometheus.Prometheus(client, FLEET, window="1m")
        deadline = time.monotonic() + 60
        while True:
            try:
                found = reader.read()
            except errors.NotMeasuredError:
                found = None  # it is still starting
            if found is not None and found.p95[0, 1, Signal.HBM] > 0:
                break
            assert time.monotonic() < deadline
            time.sleep(0.5)
    assert found.p95[0, 0, Signal.CORE_TEMPERATURE] == 60.0
    assert found.p95[0, 1, Signal.CORE_TEMPERATURE] == 61.0
    assert found.p95[0, 1, Signal.HBM] == 0.75
    assert found.dropped[Dropped.UNKNOWN_DEVICE] >= 4


def test_a_prometheus_that_is_not_there_is_not_measured() -> None:
    with (
        httpx.Client(base_url=f"http://{ADDRESS}:1", trust_env=False) as client,
        pytest.raises(errors.NotMeasuredError),
    ):
        prometheus.Prometheus(client, FLEET).read()
