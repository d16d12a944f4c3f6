"""The probe: one POSIX script per node and sweep, as text. Its fixed part is `probe.sh`; this module adds what to read.

The answer is JSON Lines, one object per command as it ends: ``{"id", "rc", "ms", "out", "err"}`` with base64 in
out and err, then ``{"done": N}``. rc -1: no answer within its limit; -2: a child of an earlier reading still lives;
-3: the time of the whole script was spent before it.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bringup.transport.base import Patience
from lockstep.base import limits
from lockstep.base.names import ComponentName
from pinsets import model

__all__ = ["ABANDONED", "COMMANDS", "EARLIER_ALIVE", "NO_TIME", "Command", "packages", "script"]

ABANDONED = -1
EARLIER_ALIVE = -2
NO_TIME = -3

_PLACEHOLDER = re.compile(r"\{[a-z]+\}")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+*_-]*")
_KERNELS = ("linux-image-[0-9]*", "kernel-core")
"""Whatever the registry says of kernels: the newest installed one is what the next boot brings."""


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


COMMANDS: tuple[Command, ...] = (
    # Files first: /proc and sysfs answer when the driver does not.
    Command("host", "read_host"),
    Command("kernel", "read_kernel"),
    Command("boot", "read_boot"),
    Command("serial", "read_serial"),
    Command("packages", "read_packages"),
    Command("holders", "read_holders"),
    Command("module", "read_module"),
    Command("next_modules", "read_next_modules"),
    Command("nccl", "read_nccl"),
    Command("toolkit", "nvidia-ctk --version"),
    Command("kubelet", "kubelet --version"),
    Command("kubeadm", "kubeadm version -o short"),
    Command("fabricmanager", "nv-fabricmanager --version"),
    Command("imex", "nvidia-imex --version"),
    Command("imex_domain", "nvidia-imex-ctl -N -j"),
    # NVML last: it is what hangs.
    Command("smi", "nvidia-smi -q -x", group="nvml"),
)


def packages(components: Mapping[ComponentName, model.Component]) -> tuple[str, ...]:
    """Names and patterns of every package that carries a component, sorted; ``{version}`` in a name becomes ``*``."""
    names = set(_KERNELS)
    for component in components.values():
        for carried in component.packages.values():
            names.update(_PLACEHOLDER.sub("*", name) for name in carried)
    return tuple(sorted(name for name in names if name in _KERNELS or _PACKAGE.fullmatch(name)))


def script(components: Mapping[ComponentName, model.Component], patience: Patience | None = None) -> str:
    """The exact text that is fed to ``sh -s``; the same for every node of a sweep."""
    given = patience or Patience()
    scale = given.command_seconds / limits.COMMAND_SECONDS
    head = [
        f"bytes={limits.OUTPUT_BYTES_PER_COMMAND}",
        f"total={_centiseconds(given.script_seconds)}",
        f"packages='{' '.join(packages(components))}'",
    ]
    fixed = importlib.resources.files("bringup").joinpath("probe.sh").read_text(encoding="utf-8")
    return "\n".join([*head, fixed, *_main(COMMANDS, scale), ""])


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
        lines.append(f"  run {command.id} {command.group or command.id} {limit} {command.words}")
    return [*lines, '  printf \'{"done":%s}\\n\' "$count"', "}", "main"]


def _centiseconds(seconds: float) -> int:
    return max(1, round(seconds * 100))
