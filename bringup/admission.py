"""The act of letting a node take jobs, as values: the file on the node, the journal's record, and what is half done.

Admission belongs to a node and its serial, never to a pool. Pure, but for the clock's value that is passed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bringup.cluster_views import NodeView
from bringup.stages import Stage
from inventory.model import Node, NodeState, Sku
from lockstep.base import journal
from pinsets import equality
from pinsets.facts import NodeFacts
from pinsets.model import Lock

__all__ = ["RETRIED", "file_of", "record", "unfinished"]

RETRIED: Final = (Stage.JOIN, Stage.ADMIT)
"""Stages that may fail on an in-step node: no fact shows it, so only the journal's record makes them run again."""


def file_of(node: Node, sku: Sku, lock: Lock, facts: NodeFacts, at: float) -> dict[str, object]:
    """Content of /var/lib/lockstep/admission.json. ``at`` in Unix seconds."""
    return {
        "lock": lock.full,
        "job": lock.job,
        "serial": facts.serial or "",
        "generation": node.generation,
        "burnin": sku.burnin,
        "at": at,
    }


def record(node: Node, sku: Sku, lock: Lock, facts: NodeFacts, at: float) -> journal.Admission:
    """The journal's record, with the version map of every pinned coordinate."""
    return journal.Admission(
        node=node.name,
        slot=node.slot,
        serial=facts.serial or "",
        generation=node.generation,
        lock=lock.full,
        job=lock.job,
        versions=equality.version_map(facts, lock, sku),
        burnin=sku.burnin,
        at=at,
    )


def unfinished(
    node: Node,
    facts: NodeFacts,
    lock: Lock,
    *,
    assigned: journal.Assignment | None,
    interrupted: journal.Attempt | None,
    fence: journal.Fence | None,
    cluster: bool,
    view: NodeView | None,
) -> str | None:
    """Why an in-step node still waits for its admission to be finished; None when it does not.

    None as well for a node that never was in our hands: adopted nodes are left as they
    are. ``cluster`` says whether the cluster was asked; ``view`` is its Node then.
    """
    if node.state not in (NodeState.NEW, NodeState.IN_SERVICE):
        return None
    if interrupted is not None:
        said = "was interrupted" if interrupted.ended is None else f"failed: {interrupted.reason}"
        return f"stage {interrupted.stage} {said}"
    if fence is not None:
        return f"our {'taint' if fence.kind is journal.FenceKind.FENCED else 'cordon'} is still there: {fence.reason}"
    if assigned is None and not _says(facts.admission, "lock", lock.full):
        return None
    if assigned is not None and facts.admission is None and node.state is NodeState.NEW:
        return "not admitted"
    if assigned is not None and facts.admission is not None and not _says(facts.admission, "lock", lock.full):
        return "admitted on another lock"
    if not cluster or node.spare:
        return None
    return _in_cluster(node, lock, view)


def _in_cluster(node: Node, lock: Lock, view: NodeView | None) -> str | None:
    if view is None:
        return "admitted, but no Node of the cluster" if node.state is NodeState.NEW else None
    if view.unverified:
        return "admitted, but its Node still carries the taint it registered with"
    if view.fenced:
        return "in step, but its Node is fenced"
    if view.lock_digest is not None and view.lock_digest != lock.full:
        return "admitted, but its Node names another lock"
    return None


def _says(admission: Mapping[str, object] | None, name: str, value: str) -> bool:
    return admission is not None and admission.get(name) == value
