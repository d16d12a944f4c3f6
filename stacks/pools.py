"""A pool as the engine sees it: inputs, identity, and what deviates. Plain values only.

The inputs hold what a person declares (lock, pins, nodes), each node as one string, so that
state stays small; the output ``skew`` holds only what deviates, so that a preview of ten
thousand nodes prints the odd ones and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from inventory import model
from pinsets.model import Lock

__all__ = ["FLEETS", "TYPE", "VERSION", "Skew", "identity", "inputs", "odd", "reference", "split_identity"]

TYPE: Final = "lockstep:fleet:NodePool"
VERSION: Final = "0.1.0"
"""Of the plugin and of every resource: the engine matches them exactly."""
FLEETS: Final = Path("inventory") / "fleets"
"""Where named fleets lie in a checkout."""

Skew = dict[str, dict[str, str]]
"""Node → coordinate or word (``unreachable``, ``unreadable``, ``admission``) → text."""


def reference(fleet: model.Fleet, checkout: Path | None) -> str:
    """How the state names a fleet file: its name where it lies in the checkout's fleets, else its absolute path.

    The name and not the path for the former, so that the same state serves every checkout.
    """
    path = fleet.path.absolute()
    if checkout is not None and path.parent == checkout.absolute() / FLEETS:
        return path.stem
    return str(path)


def inputs(
    fleet: model.Fleet, pool: model.Pool, lock: Lock, checkout: Path | None, kubeconfig: Path | None = None
) -> dict[str, object]:
    """The inputs of the pool's resource: ``fleet``, ``pool``, ``lock``, ``pins`` and ``nodes``.

    With a cluster also ``kubeconfig``, the path for `join` and `admit`; no change of it is a change of the pool.
    """
    where = {"kubeconfig": str(kubeconfig)} if kubeconfig is not None else {}
    return {
        "fleet": reference(fleet, checkout),
        "pool": str(pool.name),
        "lock": lock.full,
        "pins": {pin.component: pin.version for pin in lock.pins},
        "nodes": {str(node.name): _node(node) for node in pool.nodes},
        **where,
    }


def _node(node: model.Node) -> str:
    """``slot address``, with the generation once a machine has been replaced there."""
    plain = f"{node.slot} {node.address}"
    return plain if node.generation == 1 else f"{plain} generation {node.generation}"


def identity(fleet: model.Fleet, pool: model.Pool) -> str:
    """The resource id, ``FLEET/POOL``; also what `pulumi import` takes."""
    return f"{fleet.name}/{pool.name}"


def split_identity(text: str) -> tuple[str, str] | None:
    """Fleet reference and pool name of an id; None when it is not one of ours."""
    fleet, slash, pool = text.rpartition("/")
    return (fleet, pool) if slash and fleet and pool else None


def odd(skew: Mapping[str, Mapping[str, str]]) -> Skew:
    """A plain copy without empty entries, in name order."""
    return {node: dict(sorted(entry.items())) for node, entry in sorted(skew.items()) if entry}
