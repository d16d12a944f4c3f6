"""Machines and services that lie in all they say, one maker per source of facts.

``gpu-001`` … ``gpu-008`` are in step with each other. ``gpu-009`` says TEXT wherever it may say anything; over SSH and
in a folder there is a tenth that says it in place of an answer.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import http.server
import json
import socket
import threading
import time
import xml.sax.saxutils as saxutils
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.cli import audit_work
from tests.bringup import answers, hostile, servers

OWNED = "owned"
"""A file of this name would be the work of a shell."""
TEXT = (
    f"580.1{hostile.ESCAPE}{hostile.C1}{hostile.DIRECTION}{hostile.MARKUP}[/x][bold red]'\"&<b>$(touch {OWNED})"
    f"`touch {OWNED}`;touch {OWNED}|{{{{7*7}}}}%s\\"
)
GOOD = tuple(f"gpu-00{number}" for number in range(1, 9))
ODD = "gpu-009"
SILENT = "gpu-010"


def answer(index: int) -> bytes:
    """Of a node in step."""
    return answers.answer(str(index))


def lying() -> bytes:
    """TEXT in files, outputs, standard errors, identifiers and XML; the rest as the others."""
    smi = saxutils.escape(hostile.MARKUP + hostile.DIRECTION)
    lines = answers.answer(TEXT, bios=TEXT, kernel=TEXT, nccl=TEXT, boot=TEXT, vbios0=smi, vbios1=smi).splitlines()
    coded = base64.b64encode(TEXT.encode("utf-8", "surrogatepass")).decode()
    changed = []
    for line in lines:
        value = json.loads(line)
        if value.get("id") == "toolkit":
            value |= {"rc": 3, "out": coded, "err": coded}
        if value.get("id") == "kubelet":
            value |= {"out": coded}
        changed.append(json.dumps(value).encode())
    changed.insert(0, json.dumps({"id": TEXT, "rc": 0, "ms": 1, "out": coded, "err": coded}).encode())
    return b"\n".join([*changed, b""])


@dataclass(frozen=True)
class Site:
    """A folder to stand in, a home, and where the hosts answer."""

    here: Path
    ports: Mapping[str, int]

    def lines(self, form: str) -> str:
        """One per host, by its name and port."""
        return "".join(form.format(name=name, port=port) + "\n" for name, port in self.ports.items())


@contextlib.contextmanager
def over_ssh(here: Path, home: Path) -> Iterator[Site]:
    """Real sshd whose command prints an answer whatever is asked; ~/.ssh/config of ``home`` leads to them."""
    for folder in (here / "good", here / "odd", home / ".ssh"):
        folder.mkdir(parents=True, mode=0o700)
    (here / "good.jsonl").write_bytes(answer(1))
    (here / "odd.jsonl").write_bytes(lying())
    (here / "banner").write_text(TEXT + "\n", encoding="utf-8", errors="surrogatepass")
    keys = servers.make_keys(here)
    commands = {name: f"ForceCommand cat {here}/{name}.jsonl; echo '{name}' >&2" for name in ("good", "odd")}
    with (
        servers.sshd(keys, here / "good", commands["good"]) as good,
        servers.sshd(keys, here / "odd", commands["odd"], f"Banner {here}/banner") as odd,
        _rude() as rude,
    ):
        site = Site(here, {**dict.fromkeys(GOOD, good.port), ODD: odd.port, SILENT: rude})
        host = "Host {name}\n  Port {port}"
        (home / ".ssh" / "config").write_text(
            site.lines(host)
            + f"Host *\n  HostName {servers.BIND}\n  User {getpass.getuser()}\n  IdentityFile {keys.user}\n"
            + "  IdentitiesOnly yes\n"
        )
        known = "".join(f"[{servers.BIND}]:{port} {keys.public('host')}\n" for port in {good.port, odd.port, rude})
        (home / ".ssh" / "known_hosts").write_text(known)
        yield site


@contextlib.contextmanager
def _rude() -> Iterator[int]:
    """A port on which TEXT is said in place of SSH's first words."""
    server = socket.create_server((servers.BIND, 0))
    said = f"{TEXT}\r\nSSH-1.0-{TEXT}\r\n".encode("utf-8", "surrogatepass")

    def serve() -> None:
        while True:
            try:
                one, _ = server.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), one:
                one.sendall(said)
                one.settimeout(2)
                one.recv(1024)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(server.getsockname()[1])
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)


@contextlib.contextmanager
def served(answered: Callable[[str], Any]) -> Iterator[str]:
    """An HTTP server on loopback that answers a path with JSON; yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answered(self.path)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def prometheus(path: str) -> Any:
    """Every series of every query, with TEXT in the labels of the last node and as a node's name."""
    labels = [
        {
            "nodename": name,
            "node": name,
            "release": TEXT if name == ODD else "6.8.0-1",
            "bios_version": TEXT if name == ODD else "1.0",
            "DCGM_FI_DRIVER_VERSION": TEXT if name == ODD else "580.126.20",
            "kernel_version": TEXT if name == ODD else "6.8.0-1",
            "container_runtime_version": f"containerd://{TEXT if name == ODD else '2.1.4'}",
            TEXT: TEXT,
        }
        for name in (*GOOD, ODD, TEXT)
    ]
    result = [{"metric": one, "value": [0, str(time.time())]} for one in labels]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def kubernetes(path: str) -> Any:
    """Nodes, ResourceSlices and no pods; one Node's name is TEXT itself."""
    items: Sequence[Any] = ()
    if "/nodes" in path:
        items = [_node(name, name not in GOOD) for name in (*GOOD, ODD, TEXT)]
    if "/resourceslices" in path:
        items = [_slice(name, name not in GOOD) for name in (*GOOD, ODD, TEXT)]
    return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}


def _node(name: str, odd: bool) -> Any:
    words = ("kernelVersion", "osImage", "kubeletVersion", "kubeProxyVersion", "bootID", "machineID", "systemUUID")
    words += ("architecture", "operatingSystem")
    info = {word: TEXT if odd else "1.0" for word in words}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-30T10:00:00Z"}
    return {
        "metadata": {"name": name, "uid": "u", "labels": {"x": TEXT}, "annotations": {"y": TEXT}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule", "value": TEXT}]},
        "status": {
            "nodeInfo": {**info, "containerRuntimeVersion": f"containerd://{TEXT if odd else '2.1.4'}"},
            "conditions": [ready],
        },
    }


def _slice(name: str, odd: bool) -> Any:
    said = {"string": TEXT if odd else "580.126.20"}
    return {
        "metadata": {"name": f"s-{name}"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": TEXT if odd else "gpu-0", "attributes": {"driverVersion": said, "productName": said}}],
        },
    }


@contextlib.contextmanager
def words(source: str, here: Path, home: Path) -> Iterator[audit_work.Words]:
    """What `lockstep audit` is called with for a source."""
    home.mkdir(parents=True, exist_ok=True)
    if source == "from-dir":
        folder = here / "outputs"
        folder.mkdir()
        for index, name in enumerate(GOOD):
            (folder / f"{name}.jsonl").write_bytes(answer(index))
        (folder / f"{ODD}.jsonl").write_bytes(lying())
        (folder / f"{SILENT}.jsonl").write_text(TEXT, encoding="utf-8", errors="surrogatepass")
        yield audit_work.Words(fleet=None, folder=folder)
    elif source == "prometheus":
        with served(prometheus) as url:
            yield audit_work.Words(fleet=None, prometheus=url)
    elif source == "kubernetes":
        with served(kubernetes) as url:
            config = {
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
            }
            (home / ".kube").mkdir()
            (home / ".kube" / "config").write_text(json.dumps(config))
            yield audit_work.Words(fleet=None, context="lab")
    else:
        with over_ssh(here, home) as site:
            yield _of_ssh(source, site)


def _of_ssh(source: str, site: Site) -> audit_work.Words:
    names = ",".join(site.ports)
    if source == "ansible-inventory":
        path = site.here / "hosts.ini"
        path.write_text(
            "[gpu]\n"
            + site.lines(f"{{name}} ansible_host={servers.BIND} ansible_port={{port}} note='$(touch {OWNED})'")
        )
        return audit_work.Words(fleet=None, inventory=path, timeout=10)
    if source == "slurm":
        # A real controller is in sources/test_hosts_of_a_slurm_partition.py; here it is what it says that counts.
        program = site.here / "sinfo"
        program.write_text("#!/bin/sh\ncat <<'END'\n" + site.lines("{name}|{name}|idle") + "END\n")
        program.chmod(0o755)
        return audit_work.Words(fleet=None, partition="gpu", timeout=10)
    transport = source.removeprefix("hosts by ")
    return audit_work.Words(fleet=None, hosts=(names,), transport=transport, timeout=10)
