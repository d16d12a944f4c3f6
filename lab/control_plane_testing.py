"""A real control plane for tests, and machines that are lab nodes as far as it can see.

Such a machine is a process that plays the node's pid 1 and, when asked for, the stand-in
kubelet with a given set of GPUs; both end with the process that made them, whatever ends that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightkube
from lightkube import codecs
from lightkube.config.kubeconfig import KubeConfig

from lab import control_plane
from lab import control_plane_files as files

__all__ = ["Machine", "Plane", "running"]

MACHINES = 200
"""Tokens made ahead: the API server reads them at its start only."""
KUBELET = Path(__file__).with_name("stand_ins") / "kubelet"


@dataclasses.dataclass(frozen=True, slots=True)
class Plane:
    """A running control plane and where it keeps its things."""

    state: Path
    server: str
    kubeconfig: Path
    _names: Iterator[str] = dataclasses.field(repr=False)

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Apply objects as they are (server side), in this order."""
        with self.client() as client:
            for obj in objects:
                client.apply(codecs.from_dict(dict(obj)), field_manager="lockstep-lab", force=True)

    def client(self) -> lightkube.Client:
        """The administrator's client."""
        return lightkube.Client(KubeConfig.from_file(self.kubeconfig).get(), trust_env=False)

    @contextlib.contextmanager
    def machine(self, gpus: Sequence[str] = ()) -> Iterator[Machine]:
        """A machine, powered on, under a name that no other has had; ``gpus``: UUIDs that its nvidia-smi lists."""
        name = next(self._names)
        machine = Machine(self, name, files.ensure_folder(self.state / "machines" / name))
        machine.set_gpus(gpus)
        machine.power_on()
        try:
            yield machine
        finally:
            machine.power_off()


class Machine:
    """See `Plane.machine`."""

    def __init__(self, plane: Plane, name: str, folder: Path) -> None:
        self.name = name
        self._plane = plane
        self._folder = folder
        self._first: subprocess.Popen[bytes] | None = None
        self._kubelet: subprocess.Popen[bytes] | None = None

    def set_gpus(self, gpus: Sequence[str]) -> None:
        """What nvidia-smi lists from now on."""
        pieces = "".join(_gpu(number, uuid) for number, uuid in enumerate(gpus))
        head = "<driver_version>580.105.08</driver_version><cuda_version>13.0</cuda_version>"
        (self._folder / "smi.xml").write_text(f"<nvidia_smi_log>{head}{pieces}</nvidia_smi_log>\n")
        tools = files.ensure_folder(self._folder / "tools")
        (tools / "nvidia-smi").write_text(_SMI.format(folder=self._folder))
        (tools / "nvidia-smi").chmod(0o700)

    def power_on(self) -> None:
        """Start pid 1, recorded as lab nodes record theirs."""
        mark = secrets.token_hex(16)
        # It waits for a pipe that this process holds: when the test is killed, so is the machine.
        words = ["/bin/sh", "-c", "read -r _", mark]
        self._first = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        record = files.ensure_folder(self._plane.state / "nodes" / self.name) / "pid1"
        record.write_text(f"{self._first.pid} {mark}\n")

    def power_off(self) -> None:
        """End the kubelet and pid 1, hard."""
        for process in (self._kubelet, self._first):
            if process is not None:
                process.kill()
                process.wait()
                if process.stdin is not None:
                    process.stdin.close()
        self._kubelet = self._first = None

    def start_kubelet(self, *flags: str) -> None:
        """The stand-in kubelet, with the node's own token."""
        kubeconfig = self._folder / "kubeconfig"
        files.write_private(kubeconfig, control_plane.node_kubeconfig(self._plane.state, self.name))
        environ = {"PATH": f"{self._folder / 'tools'}:{os.defpath}"}
        words = [sys.executable, str(KUBELET), f"--kubeconfig={kubeconfig}", f"--hostname-override={self.name}"]
        words += [f"--pid-file={self._folder / 'kubelet.pid'}", "--node-ip=127.0.0.1", "--until-eof", *flags]
        with (self._folder / "kubelet.log").open("ab") as log:
            self._kubelet = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=log, env=environ)

    def look_again(self) -> None:
        """Have the kubelet look at the GPUs now."""
        if self._kubelet is None:
            raise RuntimeError("the kubelet does not run")
        self._kubelet.send_signal(signal.SIGHUP)


@contextlib.contextmanager
def running(state: Path) -> Iterator[Plane]:
    """A control plane with its state in ``state``, ended at the end, or with this process if that is killed."""
    nodes = [f"gpu-{number:03}" for number in range(MACHINES)]
    endpoint = control_plane.start(state, nodes, lambda _: None, owner=os.getpid(), durable=False)
    try:
        yield Plane(state, endpoint.server, endpoint.kubeconfig, iter(nodes))
    finally:
        control_plane.stop(state, lambda _: None)


def _gpu(number: int, uuid: str) -> str:
    fields = {
        "product_name": "NVIDIA GB200",
        "product_brand": "NVIDIA",
        "product_architecture": "Blackwell",
        "addressing_mode": "ATS",
        "uuid": uuid,
        "minor_number": str(number),
    }
    body = "".join(f"<{key}>{value}</{key}>" for key, value in fields.items())
    memory = "<fb_memory_usage><total>189471 MiB</total></fb_memory_usage>"
    return f'<gpu id="0000000{8 + number}:01:00.0">{body}{memory}</gpu>'


_SMI = """#!/bin/sh
case "$*" in
"-q -x") exec cat '{folder}/smi.xml' ;;
*) exit 2 ;;
esac
"""
