"""Hosts of a Slurm partition, by `sinfo`; they are read over SSH as any others."""

from __future__ import annotations

import re
import subprocess
from typing import Final

from bringup.hostlists import checked
from bringup.targets import for_declared
from bringup.transport.base import Target
from inventory.model import Ssh
from lockstep.base import errors
from lockstep.base.names import NodeName

__all__ = ["hosts", "parse"]

SECONDS: Final = 30.0
"""A controller that is away costs `sinfo` nine seconds of its own."""
_PARTITION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,-]{0,200}")


def hosts(partition: str) -> dict[NodeName, Target]:
    """Nodes of a partition (or several, by commas) with the addresses that Slurm uses.

    Raises `errors.InputError` for a name that can be none, `errors.NotMeasuredError` when Slurm is
    not there, does not answer, or has no node in it.
    """
    if not _PARTITION.fullmatch(partition):
        raise errors.InputError(
            f"{partition!r} is no partition", place="--slurm", hint="the name that `sinfo -s` shows"
        )
    try:
        done = subprocess.run(
            ["sinfo", "-h", "-N", "-p", partition, "-o", "%N|%o|%T"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise errors.NotMeasuredError("there is no `sinfo` here", hint="run it where Slurm's commands are") from error
    except subprocess.TimeoutExpired as error:
        raise errors.NotMeasuredError(f"sinfo did not end in {SECONDS:.0f} s", hint="is slurmctld up?") from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        raise errors.NotMeasuredError(f"sinfo ended with {done.returncode}: {said}", place="--slurm")
    ways = parse(done.stdout)
    if not ways:
        raise errors.NotMeasuredError(f"partition {partition} has no node", hint="the names that `sinfo -s` shows")
    return ways


def parse(text: str) -> dict[NodeName, Target]:
    """Lines ``NAME|ADDRESS|STATE``; a node of two partitions comes twice. Raises `errors.InputError`."""
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition("|")
        address = rest.partition("|")[0]
        if name:
            found[name] = address if address and address != name else None
    checked([*found, *(address for address in found.values() if address)], "--slurm")
    return for_declared({name: (address, Ssh()) for name, address in found.items()})
