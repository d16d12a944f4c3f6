"""The probe: one POSIX script per node and sweep, as text. Its fixed part is `probe.sh`; this module adds what to read.

The answer is JSON Lines, one object per command, ``{"id", "rc", "ms", "out", "err"}`` with base64 in out and err, then
``{"done": N}``; whole lines, written together at the end and every second until then. rc -1: no answer within its
limit; -2: a child of an earlier reading still lives; -3: the time of the whole script was spent before it.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from bringup.transport.base import Patience
from lockstep.base import limits
from lockstep.base.names import ComponentName
from pinsets import model

__all__ = ["ABANDONED", "COMMANDS", "EARLIER_ALIVE", "MODULES", "NO_TIME", "Command", "commands", "packages", "script"]

ABANDONED = -1
EARLIER_ALIVE = -2
NO_TIME = -3

_PLACEHOLDER = re.compile(r"\{[a-z]+\}")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+*_-]*")
_ALWAYS = ("linux-image-[0-9]*", "kernel-core", "datacenter-gpu-manager-4-cuda*")
"""Whatever the registry says: the newest installed kernel is what the next boot brings, and DCGM's part for a CUDA
is named by it."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the probe."""

    id: str
    words: str
    """Shell words: a program with arguments, or a function of `probe.sh`."""
    group: str | None = None
    """Commands of one group are not started while a child of an earlier reading of the same group lives."""
    seconds: float = limits.COMMAND_SECONDS
    """Longest time it may take, at the usual patience."""
    when: str | None = None
    """A test by builtins of the shell; where it fails the node has nothing of the kind, and no process is started."""
    deep: bool = False
    """Only asked for with ``--deep``: it is heavy, or disturbs a node at work."""
    instead: tuple[str, str] | None = None
    """(test, shell words): what is run where the program is not on the node itself."""


_RDMA = "rdma_there"
_CONTAINER = "/run/nvidia/driver"
"""Where the GPU operator's driver container shows its root; the host then has no tools of its own."""
_DRIVER_ROOT = f'[ "$uid" = 0 ] && [ -x {_CONTAINER}/usr/bin/nvidia-smi ]'
_AMD = "[ -d /sys/module/amdgpu ]"

COMMANDS: tuple[Command, ...] = (
    Command("root", "read_root", when='[ "$uid" != 0 ] && command -v sudo >/dev/null'),
    # Files first: /proc and sysfs answer when the driver does not.
    Command("host", "read_host"),
    Command("kernel", "uname -rm"),
    Command("boot", "read_boot", when="command -v grub-editenv >/dev/null || command -v grub2-editenv >/dev/null"),
    Command("serial", "read_serial"),
    Command("packages", "read_packages"),
    Command("holders", "read_holders"),
    Command("module", "read_modules"),
    Command("next_modules", "read_next_modules", when="other_kernels"),
    Command("dkms", "dkms status"),
    Command("libraries", "read_libraries"),
    Command("disks", "read_disks"),
    Command("log", "read_log", when="command -v dmesg >/dev/null"),
    Command("nics", "read_nics", when=_RDMA),
    Command("devlink", "devlink -j dev info", when=_RDMA),
    Command("ethtool", "read_ethtool", when=f"{_RDMA} && command -v ethtool >/dev/null"),
    Command("ofed", "ofed_info -s"),
    Command("mft", "flint --version"),
    Command("ucx", "ucx_info -v"),
    Command("libfabric", "read_libfabric", when="command -v fi_info >/dev/null || [ -x /opt/amazon/efa/bin/fi_info ]"),
    Command("toolkit", "nvidia-ctk --version"),
    Command("container_cli", "nvidia-container-cli --version"),
    Command("cdi", "read_cdi", when="cdi_there"),
    Command("containerd", "containerd --version"),
    Command("runc", "runc --version"),
    Command("cri", "as_root crictl version", when="command -v crictl >/dev/null"),
    Command("docker", "docker --version"),
    Command("kubelet", "kubelet --version"),
    Command("kubeadm", "kubeadm version -o short"),
    Command("fabricmanager", "nv-fabricmanager --version"),
    Command("nvlsm", "/opt/nvidia/nvlsm/sbin/nvlsm --version"),
    Command("imex", "nvidia-imex --version"),
    Command("imex_domain", "nvidia-imex-ctl -N -j"),
    Command("dcgm", "read_dcgm", when="command -v nv-hostengine >/dev/null || command -v dcgmi >/dev/null"),
    Command("amd", "read_amd", when=_AMD),
    Command("amd_version", "amd-smi version --json", group="amdsmi", when=_AMD),
    Command("amd_firmware", "amd-smi firmware --json", group="amdsmi", when=_AMD),
    Command("amd_static", "amd-smi static --json", group="amdsmi", when=_AMD),
    Command("rocm_smi", "rocm-smi -a --json", group="amdsmi", when=f"{_AMD} && ! command -v amd-smi >/dev/null"),
    # NVML last: it is what hangs.
    Command("smi", "nvidia-smi -q -x", group="nvml", instead=(_DRIVER_ROOT, f"chroot {_CONTAINER} nvidia-smi -q -x")),
    Command("nvlink", "nvidia-smi nvlink -info", group="nvml", when="nvlink_there"),
    Command("conf_compute", "nvidia-smi conf-compute -f", group="nvml", deep=True),
    Command("topology", "nvidia-smi topo -m", group="nvml", deep=True),
    Command("mstflint", "each_nic mstflint -d {} q", when=f"{_RDMA} && command -v mstflint >/dev/null", deep=True),
    Command(
        "mlxfwmanager",
        "as_root mlxfwmanager --query --query-format XML",
        when="command -v mlxfwmanager >/dev/null",
        deep=True,
    ),
    Command(
        "mlxconfig", "each_nic mlxconfig -e -d {} q", when=f"{_RDMA} && command -v mlxconfig >/dev/null", deep=True
    ),
    Command("nicctl", "as_root nicctl show card -j", when="command -v nicctl >/dev/null", deep=True),
    Command("acs", "read_acs", when="command -v lspci >/dev/null", deep=True),
)

MODULES = ("nvidia", "nvidia_peermem", "nvidia_fs", "mlx5_core", "ib_core", "efa", "gdrdrv", "amdgpu")
"""Kernel modules whose file and state are read."""


def packages(components: Mapping[ComponentName, model.Component]) -> tuple[str, ...]:
    """Names and patterns of every package that carries a component, sorted; ``{version}`` in a name becomes ``*``."""
    names = set(_ALWAYS)
    for component in components.values():
        for carried in component.packages.values():
            names.update(_PLACEHOLDER.sub("*", name) for name in carried)
    return tuple(sorted(name for name in names if name in _ALWAYS or _PACKAGE.fullmatch(name)))


def commands(deep: bool = False) -> tuple[Command, ...]:
    """What is asked, in order; heavy tools only where ``deep``."""
    return tuple(command for command in COMMANDS if deep or not command.deep)


def script(
    components: Mapping[ComponentName, model.Component],
    patience: Patience | None = None,
    *,
    deep: bool = False,
    without: Collection[str] = (),
) -> str:
    """The exact text that is fed to ``sh -s``; the same for every node of a sweep.

    ``deep`` adds the heavy vendor tools; ``without`` leaves commands out by their ids (what a benchmark does not
    want to measure).
    """
    given = patience or Patience()
    scale = given.command_seconds / limits.COMMAND_SECONDS
    head = [
        f"bytes={limits.OUTPUT_BYTES_PER_COMMAND}",
        f"total={_centiseconds(given.script_seconds)}",
        f"packages='{' '.join(packages(components))}'",
        f"modules='{' '.join(MODULES)}'",
    ]
    fixed = importlib.resources.files("bringup").joinpath("probe.sh").read_text(encoding="utf-8")
    return "\n".join(
        [*head, fixed, *_main([command for command in commands(deep) if command.id not in without], scale), ""]
    )


def _main(commands: Iterable[Command], scale: float) -> list[str]:
    lines = [
        "main() {",
        "  if ! prepare; then",
        '    echo \'{"failed":"no private folder under /dev/shm"}\'',
        "    return",
    ]
    lines.append("  fi")
    for command in commands:
        limit = _centiseconds(command.seconds * scale)
        head = f"run {command.id} {command.group or command.id} {limit}"
        line = f"{head} {command.words}"
        if command.when is not None:
            line = f"if {command.when}; then {line}; else skip {command.id}; fi"
        if command.instead is not None:
            there = f"command -v {command.words.split()[0]} >/dev/null"
            line = f"if ! {there} && {command.instead[0]}; then {head} {command.instead[1]}; else {line}; fi"
        lines.append(f"  {line}")
    return [*lines, '  answer="$answer{\\"done\\":$count}', '"', "  send", "}", "main"]


def _centiseconds(seconds: float) -> int:
    return max(1, round(seconds * 100))
