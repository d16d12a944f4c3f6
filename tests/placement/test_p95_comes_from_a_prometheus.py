"""The aggregate path: a real Prometheus where Debian's package is installed, and answers in other forms."""

from __future__ import annotations

import http.server
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from lockstep.base import errors
from placement import headroom, topology
from placement.telemetry import prometheus
from placement.telemetry.samples import Dropped
from placement.telemetry.signals import Signal

ADDRESS = "127.0.0.1"
FLEET = topology.build([topology.NodeSpec(f"n{number}", 1, 1, 2, "H100") for number in range(3)])


class _Exporter(http.server.BaseHTTPRequestHandler):
    """What dcgm-exporter prints, for Prometheus to scrape."""

    def do_GET(self) -> None:
        lines = [
            f'DCGM_FI_DEV_{name}{{Hostname="{host}",gpu="{gpu}"}} {value}'
            for host, gpu in (("n0", 0), ("n0", 1), ("stranger", 0), ("n1", 9))
            for name, value in (
                ("GPU_TEMP", 60 + gpu),
                ("POWER_USAGE", 500),
                ("FB_USED", 30),
                ("FB_FREE", 10),
                ("MEMORY_TEMP", 9223372036854775794),
            )
        ]
        for gpu in (0, 1):
            lines += [
                f'DCGM_FI_PROF_PCIE_{way}_BYTES{{Hostname="n0",gpu="{gpu}"}} {value}'
                for way, value in (("TX", 4e9 * gpu), ("RX", 2e9))
            ]
            sent = int(50e9 * gpu * (time.time() - self.server.begun))  # type: ignore[attr-defined]
            lines.append(f'node_infiniband_port_data_transmitted_bytes_total{{device="mlx5_{gpu}",port="1"}} {sent}')
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
    exporter.begun = time.time()  # type: ignore[attr-defined]
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        port = probe.getsockname()[1]
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: dcgm\n    static_configs:\n"
        f"      - targets: ['{ADDRESS}:{exporter.server_port}']\n"
        "        labels: {instance: 'n0:9100'}\n"
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
            if found is not None and found.p95[0, 1, Signal.HBM] > 0 and found.p95[0, 1, Signal.NIC] > 0:
                break
            assert time.monotonic() < deadline
            time.sleep(0.5)
    assert found.p95[0, 0, Signal.CORE_TEMPERATURE] == 60.0
    assert found.p95[0, 1, Signal.CORE_TEMPERATURE] == 61.0
    assert found.p95[0, 1, Signal.HBM] == 0.75
    assert found.dropped[Dropped.UNKNOWN_DEVICE] >= 4
    # The busier direction; and what the exporter gives for "not supported" is no temperature.
    assert found.p95[0, :, Signal.PCIE].tolist() == [2000.0, 4000.0]
    assert np.isnan(found.p95[:, :, Signal.MEMORY_TEMPERATURE]).all()
    assert found.dropped[Dropped.NOT_A_NUMBER] == 2
    assert found.p95[0, 1, Signal.NIC] == pytest.approx(50_000, rel=0.2)
    # A rail at its limit leaves the GPU on it nothing, whatever the fast path says.
    left = headroom.Headroom(FLEET).of_gpus(time.time(), found.p95)
    assert left[0, 0] == pytest.approx(0.25, abs=0.01)
    assert left[0, 1] < 0.2
    assert (left[1:] == 1.0).all()


def test_a_prometheus_that_is_not_there_is_not_measured() -> None:
    with (
        httpx.Client(base_url=f"http://{ADDRESS}:1", trust_env=False) as client,
        pytest.raises(errors.NotMeasuredError),
    ):
        prometheus.Prometheus(client, FLEET).read()


@pytest.mark.parametrize(
    "answer",
    ["[]", "3", "{}", '{"status": "success"}', '{"status": "success", "data": {"result": 3}}', "<html>", '"x"'],
)
def test_a_prometheus_that_answers_in_another_form_is_not_measured(answer: str) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=answer))
    with (
        httpx.Client(base_url=f"http://{ADDRESS}", transport=transport) as client,
        pytest.raises(errors.NotMeasuredError),
    ):
        prometheus.Prometheus(client, FLEET).read()


def test_a_series_in_another_form_is_counted_and_left_out() -> None:
    series = [3, {}, {"metric": {"Hostname": "n0", "gpu": "0"}, "value": [0]}, {"metric": None, "value": [0, "1"]}]
    body = {"status": "success", "data": {"result": series}}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=body))
    with httpx.Client(base_url=f"http://{ADDRESS}", transport=transport) as client:
        found = prometheus.Prometheus(client, FLEET, {Signal.POWER: "x"}).read()
    assert found.dropped == {Dropped.NOT_A_NUMBER: 4}
    assert np.isnan(found.p95).all()
