"""Which lab holds which addresses on this machine, whatever folder its state lies in.

One small file per lab in /run/lockstep-lab, gone with the machine's boot as the labs are.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import liveness
from lab.spec import Spec
from lockstep.base import errors

__all__ = ["claim", "maker_lives", "release"]

RUN = Path("/run/lockstep-lab")


@contextmanager
def _locked() -> Iterator[Path]:
    RUN.mkdir(mode=0o755, exist_ok=True)
    claims = RUN / "claims"
    claims.mkdir(exist_ok=True)
    with (RUN / "claims.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield claims


def _started(pid: int) -> str | None:
    """Start time of a process in clock ticks, which tells it from a later one of the same pid; None: it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def maker_lives(state: Path) -> bool:
    """Whether the command that claimed the addresses for the lab in ``state`` still runs."""
    path = _file(RUN / "claims", state)
    try:
        pid, started = json.loads(path.read_text())["by"]
    except FileNotFoundError:
        return False
    return _started(pid) == str(started)


def _in_use(held: Mapping[str, Any]) -> bool:
    """Whether the claim's lab runs, or the command that made the claim is still at work."""
    pid, started = held.get("by", (0, ""))
    state = Path(held["state"])
    return _started(pid) == started or any(
        liveness.alive(state, name) or liveness.marked(liveness.folder(state, name) / "supervisor.pid")
        for name in held["nodes"]
    )


def _file(claims: Path, state: Path) -> Path:
    return claims / str(state).replace("/", "%")


def claim(spec: Spec, state: Path) -> None:
    """Take the spec's addresses for the lab in ``state``.

    Raises `errors.RefusedError` naming the other lab whose nodes run on one of them. Claims of labs that
    are down are dropped.
    """
    wanted = {(node.address, node.port) for node in spec.nodes}
    with _locked() as claims:
        for path in claims.iterdir():
            held = json.loads(path.read_text())
            other = Path(held["state"])
            if other == state:
                continue
            if not _in_use(held):
                path.unlink()
                continue
            if taken := sorted(wanted & {(address, port) for address, port in held["addresses"]}):
                address, port = taken[0]
                raise errors.RefusedError(
                    f"lab {held['name']} ({other}) already runs on {address}:{port}"
                    + (f" and {len(taken) - 1} more of these addresses" if len(taken) > 1 else ""),
                    hint=f"lockstep lab down {held['name']}, or give this fleet other addresses",
                )
        record = {
            "name": spec.name,
            "state": str(state),
            "nodes": [node.name for node in spec.nodes],
            "addresses": sorted(wanted),
            "by": [os.getpid(), _started(os.getpid())],
        }
        fresh = claims.parent / "claim.new"
        fresh.write_text(json.dumps(record))
        fresh.replace(_file(claims, state))


def release(state: Path) -> None:
    """Give the addresses back."""
    with _locked() as claims:
        _file(claims, state).unlink(missing_ok=True)
