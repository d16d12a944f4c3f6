"""The programs of a lab's control plane: their arguments, ports and health, in the order in which they start."""

from __future__ import annotations

import dataclasses
import hashlib
import http.client
import json
import ssl
import sys
import time
from pathlib import Path

from pydantic import SecretStr

from lab import control_plane_credentials as credentials
from lab import control_plane_ports as ports
from lab.liveness import ALIVE_LABEL
from lockstep.base import programs

__all__ = [
    "GRACE_SECONDS",
    "LEASE_SECONDS",
    "NAMES",
    "PORTS",
    "Plan",
    "Program",
    "health",
    "plan",
    "scheduler_configuration",
]

LEASE_SECONDS = 20
"""Life of a Node's lease; kwok renews it at a quarter of that."""
GRACE_SECONDS = 20
"""Without a renewal for so long a Node is NotReady (the default, 50 s, makes tests slow); four renewals long."""
PORTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
NAMES = ("watcher", *PORTS)
"""In the order of their start. The watcher is first: it ends the others when a test that owns them is killed."""
STAGES = Path(__file__).with_name("control_plane_stages.yaml")
ASK_SECONDS = 5.0
BEAT_SECONDS = 15.0
"""A watcher that has not gone round for so long hangs; one turn takes a second or, when the API is away, five."""


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """One program to start."""

    name: str
    argv: tuple[str, ...]
    port: int | None
    fingerprint: str
    """Changes with whatever the program was started with."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What `plan` works from."""

    state: Path
    """The lab's whole state."""
    folder: Path
    """The control plane's own part of it."""
    ports: dict[str, int]
    pki: credentials.Pki
    tokens: dict[str, SecretStr]
    owner: str
    """``PID:START`` of the process that this control plane must not outlive; "" for a lab that stays."""
    durable: bool
    """False: etcd does not wait for the disk (tests)."""

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{ports.HOST}:{self.ports['kube-apiserver']}"

    @property
    def etcd(self) -> str:
        """URL of etcd for clients."""
        return f"https://{ports.HOST}:{self.ports['etcd']}"

    def kubeconfig(self, name: str) -> str:
        """Path of a program's kubeconfig."""
        return str(self.folder / f"{name}.kubeconfig")


def plan(given: Plan) -> tuple[Program, ...]:
    """All programs, in the order of `NAMES`. Raises `errors.EngineError` when one is not built."""
    arguments: dict[str, list[str]] = {
        "watcher": [sys.executable, "-P", "-m", "lab.control_plane_watch", str(given.state), given.owner],
        "etcd": [str(programs.find("etcd")), *_etcd(given)],
        "kube-apiserver": [str(programs.find("kube-apiserver")), *_api(given)],
        "kube-controller-manager": [str(programs.find("kube-controller-manager")), *_controllers(given)],
        "kube-scheduler": [str(programs.find("kube-scheduler")), *_scheduler(given)],
        "kwok": [str(programs.find("kwok")), *_kwok(given)],
    }
    return tuple(
        Program(name, tuple(arguments[name]), given.ports.get(name), _fingerprint(given, name, arguments[name]))
        for name in NAMES
    )


def health(given: Plan, name: str) -> str:
    """Empty when the program of that name is healthy, else the reason. Never raises; takes 5 s at most."""
    if name == "watcher":
        return _beats(given.folder / "watcher.beat")
    path, headers = "/healthz", {}
    context = ssl.create_default_context(cafile=str(given.pki.authority))
    if name == "etcd":
        path = "/health"
        context.load_cert_chain(given.pki.certificate("etcd-client"), given.pki.key("etcd-client"))
    elif name == "kube-apiserver":
        path = "/readyz"
        headers = {"Authorization": f"Bearer {given.tokens[credentials.ADMIN.name].get_secret_value()}"}
    port = given.ports[name]
    if name == "kwok":
        return _ask(http.client.HTTPConnection(ports.HOST, port, timeout=ASK_SECONDS), path, headers)
    return _ask(http.client.HTTPSConnection(ports.HOST, port, timeout=ASK_SECONDS, context=context), path, headers)


def _fingerprint(given: Plan, name: str, argv: list[str]) -> str:
    """Hash of what the program would be started with; the API server reads its tokens at its start only."""
    text = "\0".join(argv)
    if name == "kube-apiserver":
        text += (given.folder / "tokens.csv").read_text()
    return hashlib.sha256(text.encode()).hexdigest()


def _etcd(given: Plan) -> list[str]:
    # One member that talks to nobody: the peer port is any free one, closed by the same certificates.
    pki, peer = given.pki, f"https://{ports.HOST}:0"
    words = [
        "--name=lab",
        f"--data-dir={given.folder / 'etcd'}",
        f"--listen-client-urls={given.etcd}",
        f"--advertise-client-urls={given.etcd}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls=https://{ports.HOST}:2380",
        f"--initial-cluster=lab=https://{ports.HOST}:2380",
    ]
    for prefix in ("", "peer-"):
        words += [
            f"--{prefix}cert-file={pki.certificate('etcd')}",
            f"--{prefix}key-file={pki.key('etcd')}",
            f"--{prefix}trusted-ca-file={pki.authority}",
            f"--{prefix}client-cert-auth",
        ]
    return words if given.durable else [*words, "--unsafe-no-fsync"]


def _api(given: Plan) -> list[str]:
    pki = given.pki
    return [
        f"--etcd-servers={given.etcd}",
        f"--etcd-cafile={pki.authority}",
        f"--etcd-certfile={pki.certificate('etcd-client')}",
        f"--etcd-keyfile={pki.key('etcd-client')}",
        f"--bind-address={ports.HOST}",
        # Without a default route it would not start otherwise.
        f"--advertise-address={ports.HOST}",
        "--endpoint-reconciler-type=none",
        f"--secure-port={given.ports['kube-apiserver']}",
        f"--tls-cert-file={pki.certificate('api')}",
        f"--tls-private-key-file={pki.key('api')}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki.service_accounts}",
        f"--service-account-signing-key-file={pki.service_accounts}",
        "--authorization-mode=Node,RBAC",
        # As on any cluster made by kubeadm: a kubelet changes its own Node only, and no taints.
        "--enable-admission-plugins=NodeRestriction",
        "--anonymous-auth=false",
        f"--token-auth-file={given.folder / 'tokens.csv'}",
        "--allow-privileged=true",
        "--profiling=false",
    ]


def _controllers(given: Plan) -> list[str]:
    config = given.kubeconfig("kube-controller-manager")
    return [
        *_delegated(given, "kube-controller-manager"),
        f"--kubeconfig={config}",
        "--leader-elect=false",
        f"--service-account-private-key-file={given.pki.service_accounts}",
        f"--root-ca-file={given.pki.authority}",
        "--use-service-account-credentials",
        f"--node-monitor-grace-period={GRACE_SECONDS}s",
        "--node-monitor-period=2s",
        # The defaults (20 and 30) make a burst of pods with claims wait for the client.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def _scheduler(given: Plan) -> list[str]:
    return [*_delegated(given, "kube-scheduler"), f"--config={given.folder / 'kube-scheduler.json'}"]


def _delegated(given: Plan, name: str) -> list[str]:
    config = given.kubeconfig(name)
    return [
        f"--bind-address={ports.HOST}",
        f"--secure-port={given.ports[name]}",
        f"--tls-cert-file={given.pki.certificate('api')}",
        f"--tls-private-key-file={given.pki.key('api')}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
    ]


def scheduler_configuration(given: Plan) -> str:
    """The scheduler's file: the stock profile, with a client that is not the bottleneck."""
    connection = {"kubeconfig": given.kubeconfig("kube-scheduler"), "qps": 200, "burst": 400}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "leaderElection": {"leaderElect": False},
    }
    return json.dumps(document, indent=1) + "\n"


def _kwok(given: Plan) -> list[str]:
    return [
        f"--kubeconfig={given.kubeconfig('kwok')}",
        f"--config={STAGES}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-label-selector={ALIVE_LABEL}=true",
        f"--node-ip={ports.HOST}",
        f"--node-lease-duration-seconds={LEASE_SECONDS}",
        f"--server-address={ports.HOST}:{given.ports['kwok']}",
    ]


def _ask(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> str:
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read(2000).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"no answer on {path}: {error}"
    finally:
        connection.close()
    return "" if answer.status == 200 else f"{path} answers {answer.status}: {body.splitlines()[-1] if body else ''}"


def _beats(beat: Path) -> str:
    try:
        age = time.time() - beat.stat().st_mtime
    except FileNotFoundError:
        return "has not gone round yet"
    return "" if age < BEAT_SECONDS else f"has not gone round for {age:.0f} s"
