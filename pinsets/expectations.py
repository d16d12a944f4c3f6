"""What one node of a pool should be: its lock, the one before it, and what is waived or not read by choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pinsets.model import Lock

if TYPE_CHECKING:
    from inventory.model import Node, Sku

__all__ = ["Expectation"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What one node should be."""

    node: Node
    sku: Sku
    lock: Lock | None
    """The lock it must equal; None: only read, never in step."""
    previous: Lock | None = None
    """The lock it comes from while a roll-out runs: in step with that one is `pending-rollout`.
    Leave it out to verify what an act brought about."""
    waived_rules: Mapping[str, str] = field(default_factory=dict)
    """Rules that the pinset waives → reason: their breaches are infos."""
    sources: tuple[str, ...] | None = None
    """Sources of the pool; pins that none of them reads are infos. None: every pin must be read."""
