"""Variables that change what a collective does, as NCCL will see them: a process's own, then those of its files.

NCCL reads ``NCCL_CONF_FILE`` or ``~/.nccl.conf``, then ``/etc/nccl.conf``, and a file never overrides what is set
already (NVIDIA/nccl src/misc/param.cc). Two images may differ in such a file and in nothing else.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

__all__ = ["PER_RANK", "home", "of_environment", "of_process", "with_files"]

PER_RANK: Final = frozenset(
    {"NCCL_CONF_FILE", "NCCL_DEBUG_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_TOPO_DUMP_FILE", "UCX_NET_DEVICES"}
)
"""Variables that rightly differ between the ranks of one node: names of files, the device nearest to a rank."""
_OURS: Final = re.compile(r"(?:NCCL|UCX|FI|RCCL|HSA)_[A-Z0-9_]+")
_BYTES: Final = 1 << 20
_VALUE: Final = 1000


def of_process(pid: int) -> dict[str, str]:
    """The environment that a process was started with. Raises OSError when it may not be read."""
    data = Path(f"/proc/{pid}/environ").read_bytes()
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def with_files(environment: Mapping[str, str], root: Path, home: str | None) -> dict[str, str]:
    """``environment`` and what NCCL's files add to it; ``root`` is where the process sees its ``/``."""
    found = dict(environment)
    own = environment.get("NCCL_CONF_FILE") or (f"{home}/.nccl.conf" if home else None)
    for name in (own, "/etc/nccl.conf"):
        if name is not None:
            for key, value in _lines(root / name.lstrip("/")):
                found.setdefault(key, value)
    return found


def home(uid: int | None = None) -> str | None:
    """Home folder as NCCL looks it up: by the user's entry, not by HOME."""
    try:
        return pwd.getpwuid(os.getuid() if uid is None else uid).pw_dir
    except KeyError:
        return None


def of_environment(environment: Mapping[str, str], ignored: frozenset[str]) -> dict[str, str]:
    """``variable NAME`` → value of those that count."""
    return {
        f"variable {name}": value[:_VALUE]
        for name, value in environment.items()
        if _OURS.fullmatch(name) and name not in ignored
    }


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            text = file.read(_BYTES).decode("utf-8", "replace")
    except OSError:
        # NCCL cannot read it either.
        return
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            yield name, value
