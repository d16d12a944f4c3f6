"""Which lab holds which addresses on this machine, whatever folder its state lies in.

One small file per lab in /run/lockstep-lab, gone with the machine's boot as the labs are.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import nodes
from lab.spec import Spec
from lockstep.base import errors

__all__ = ["claim", "release"]

RUN = Path("/run/lockstep-lab")


@contextmanager
def _locked() -> Iterator[Path]:
    RUN.mkdir(mode=0o755, exist_ok=True)
    claims = RUN / "claims"
    claims.mkdir(exist_ok=True)
    with (RUN / "claims.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield claims


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
            if not any(nodes.alive(other, name) for name in held["nodes"]):
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
        }
        _file(claims, state).write_text(json.dumps(record))


def release(state: Path) -> None:
    """Give the addresses back."""
    with _locked() as claims:
        _file(claims, state).unlink(missing_ok=True)
