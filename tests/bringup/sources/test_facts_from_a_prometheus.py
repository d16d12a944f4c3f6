"""Labels of the usual exporters, by a real Prometheus on loopback and as values."""

from __future__ import annotations

import contextlib
import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bringup.sources import prometheus
from lockstep.base import errors
from lockstep.cli import main
from pinsets.facts import Snapshot

pytestmark = pytest.mark.debian

METRICS = b"""\
node_uname_info{nodename="gpu-001",release="6.8.0-1039-nvidia-64k",machine="aarch64",sysname="Linux"} 1
node_os_info{id="ubuntu",version_id="24.04",name="Ubuntu"} 1
node_dmi_info{bios_version="0ACTV_02.05.13",product_name="P4242"} 1
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",Hostname="gpu-001",DCGM_FI_DRIVER_VERSION="580.126.20"} 41
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-2",Hostname="gpu-001",DCGM_FI_DRIVER_VERSION="580.126.20"} 42
kube_node_info{node="gpu-001",kernel_version="6.8.0-1039-nvidia-64k",kubelet_version="v1.37.1",\
container_runtime_version="containerd://2.1.4"} 1
"""
UNAME = {"nodename": "n1", "instance": "10.0.0.1:9100"}


class _Exporter(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(METRICS)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        return


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that scrapes one exporter each second."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Debian's package prometheus is not installed")
    folder = tmp_path_factory.mktemp("prometheus")
    exporter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: node\n    honor_labels: true\n"
        f"    static_configs:\n      - targets: ['127.0.0.1:{exporter.server_port}']\n"
    )
    words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    process = subprocess.Popen(
        [program, *words, f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)
        exporter.shutdown()
        exporter.server_close()


def said(found: Snapshot, node: str) -> dict[str, str]:
    """Coordinate → observation of a node."""
    facts = next(facts for name, facts in found.nodes.items() if name == node)
    return {str(at): str(fact.observation) for at, fact in facts.facts.items()}


def test_a_real_prometheus_tells_driver_kernel_bios_and_runtime(url: str) -> None:
    until = time.monotonic() + 60
    found = Snapshot(0, {})
    # Six queries one after the other: the first scrape may fall between two of them.
    while not found.nodes or len(said(found, "gpu-001")) < 6:
        assert time.monotonic() < until
        time.sleep(0.5)
        with contextlib.suppress(errors.NotMeasuredError):
            found = prometheus.read(url)
    assert said(found, "gpu-001") == {
        "driver@running": "580.126.20",
        "kernel@running": "6.8.0-1039-nvidia-64k",
        "os@running": "ubuntu-24.04",
        "firmware.bios@running": "02.05.13",
        "kubelet@ondisk": "1.37.1",
        "containerd@running": "2.1.4",
    }
    assert set(found.nodes) >= {"gpu-001"}


def test_the_audit_of_a_prometheus_holds_a_published_set_against_what_exporters_tell(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "--prometheus", url, "--pinset", "azhpc-2026-07-29-h100", "--format", "json"]
    until = time.monotonic() + 60
    seen: dict[str, str] = {}
    while "nccl@library" not in seen or "driver@running" in seen:
        assert time.monotonic() < until, seen
        time.sleep(0.5)
        code, said = main.run(words), capsys.readouterr().out
        for pool in json.loads(said)["pools"] if said else []:
            seen = {one["coordinate"]: one["observed"] for one in pool["findings"] if "gpu-001" in one["nodes"]}
    assert code == 3, "the pinned driver runs, and all else was not measured"
    assert seen["nccl@library"] == "unreadable: not offered"


def test_a_series_that_was_scraped_long_ago_is_unreadable() -> None:
    series = {"node_uname_info": [({**UNAME, "release": "6.8.0-1"}, 1000.0)]}
    assert said(prometheus.facts_of(series, None, 2000.0), "n1") == {
        "kernel@running": "unreadable: last scraped 17 min ago"
    }


@pytest.mark.parametrize("sampled", [float("nan"), float("inf"), float("-inf")])
def test_a_time_that_is_none_is_never_fresh(sampled: float) -> None:
    series = {"node_uname_info": [({**UNAME, "release": "6.8.0-1"}, sampled)]}
    assert said(prometheus.facts_of(series, None, 2000.0), "n1") == {
        "kernel@running": "unreadable: nobody knows when it was scraped"
    }


def test_two_drivers_on_one_node_are_known_by_nobody() -> None:
    series = {
        "node_uname_info": [({**UNAME, "release": "6.8.0-1"}, 1000.0)],
        "DCGM_FI_DEV_GPU_TEMP": [
            ({"instance": "10.0.0.1:9400", "gpu": "0", "DCGM_FI_DRIVER_VERSION": "580.126.20"}, 1000.0),
            ({"instance": "10.0.0.1:9400", "gpu": "1", "DCGM_FI_DRIVER_VERSION": "580.105.08"}, 1000.0),
        ],
    }
    told = said(prometheus.facts_of(series, None, 1001.0), "n1")
    assert told["driver@running"] == "unreadable: two values at once: 580.105.08, 580.126.20"
    assert told["kernel@running"] == "6.8.0-1"


def test_a_node_that_no_series_names_is_unreachable() -> None:
    found = prometheus.facts_of({}, ["gpu-009"], 1.0)
    assert [facts.unreachable for facts in found.nodes.values()] == ["prometheus: no series names it"]


def test_a_label_that_is_no_host_names_no_node() -> None:
    series = {"node_uname_info": [({"nodename": "a b\x1b[2J", "release": "6.8.0-1"}, 1000.0)]}
    assert not prometheus.facts_of(series, None, 1001.0).nodes


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "prometheus:9090", "", "http://[x]:1", "http://a:b", "http://a:99999"]
)
def test_an_address_that_is_no_http_url_is_bad_input(address: str) -> None:
    with pytest.raises(errors.InputError, match="no http or https URL"):
        prometheus.read(address)


def test_nobody_answers_there() -> None:
    with pytest.raises(errors.NotMeasuredError, match="does not answer"):
        prometheus.read("http://127.0.0.1:9")


def test_a_url_with_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(errors.InputError) as caught:
        prometheus.read("http://me:very-secret@127.0.0.1:9")
    assert "very-secret" not in caught.value.diagnostics()


@pytest.mark.parametrize("body", [b"[" * 200_000, b"<html>", b'{"status": "success", "data": []}', b"\xff\xfe"])
def test_what_answers_otherwise_is_no_prometheus(body: bytes) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
            return

    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        with pytest.raises(errors.NotMeasuredError):
            prometheus.read(f"http://127.0.0.1:{other.server_port}")
    finally:
        other.shutdown()
        other.server_close()
