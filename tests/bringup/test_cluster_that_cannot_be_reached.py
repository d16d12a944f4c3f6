"""Kubeconfigs that are missing or wrong, and API servers that do not answer: which error, and what it says."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from bringup.cluster import Cluster
from lockstep.base import errors
from tests.bringup import hostile_sources


def kubeconfig(path: Path, server: str) -> Path:
    path.write_text(f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: secret-token}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
""")
    return path


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="there is no kubeconfig") as caught:
        Cluster.from_kubeconfig(tmp_path / "nowhere")
    assert caught.value.place == str(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text",
    ["", "a: [", "just text", "clusters: []\ncontexts: []\n", "clusters: 7\ncontexts: 7\ncurrent-context: x\n"],
    ids=["empty", "not YAML", "not a mapping", "no context", "wrong types"],
)
def test_a_file_that_is_no_kubeconfig_is_bad_input(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(errors.InputError, match="not a usable kubeconfig") as caught:
        Cluster.from_kubeconfig(path)
    assert caught.value.place == str(path)


def test_a_server_that_is_not_there_could_not_be_measured(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = f"https://127.0.0.1:{port}"
    with Cluster.from_kubeconfig(kubeconfig(tmp_path / "k", server)) as cluster:
        with pytest.raises(errors.NotMeasuredError, match="cannot be reached") as caught:
            cluster.nodes()
        assert caught.value.place == server
        assert caught.value.exit_code is errors.ExitCode.NOT_MEASURED
        assert "secret-token" not in caught.value.diagnostics()


def test_a_server_that_closes_every_connection_could_not_be_measured(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def hang_up() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        path = kubeconfig(tmp_path / "k", address)
        with (
            Cluster.from_kubeconfig(path) as cluster,
            pytest.raises(errors.NotMeasuredError, match="cannot be reached"),
        ):
            cluster.identity()
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("answer", [{"items": [{"metadata": {}, "status": {"nodeInfo": {}}}]}, ["no list"], "\x1b[2J"])
def test_what_answers_otherwise_is_no_kubernetes_api(tmp_path: Path, answer: object) -> None:
    with (
        hostile_sources.served(lambda _: answer) as address,
        Cluster.from_kubeconfig(kubeconfig(tmp_path / "k", address)) as cluster,
        pytest.raises(errors.NotMeasuredError, match="is no Kubernetes API"),
    ):
        cluster.nodes()
