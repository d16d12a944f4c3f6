"""Keeping new jobs off nodes that were read and deviate: a NoSchedule taint and a condition, within a limit per run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bringup import consent, planning
from bringup.planning import NodePlan
from bringup.situations import Picture
from bringup.stagework import Site
from lockstep.base import errors, journal
from lockstep.base.names import NodeName

__all__ = ["fence"]


def fence(
    site: Site,
    picture: Picture,
    plans: Mapping[NodeName, NodePlan],
    say: Callable[[str, NodeName | None], None],
) -> list[str]:
    """Fence what deviates and may hold jobs; notes on what was left alone.

    What could not be read is never fenced, nor what a common cause explains that
    nobody accepted, nor a node whose roll-out has not begun. What runs there goes on.
    """
    if site.cluster is None or picture.views is None:
        return []
    notes: list[str] = []
    candidates = [
        node
        for node in planning.fence_candidates(picture.situations)
        if node.name in picture.views
        and not picture.views[node.name].fenced
        and not picture.views[node.name].unverified
    ]
    chosen, left = planning.to_fence(candidates, consent.fence_limit(site.pool))
    for node in chosen:
        plan = plans[node.name]
        reason = plan.reasons[-1] if plan.reasons else "deviates from its lock"
        site.book.fence(node.name, journal.FenceKind.FENCED, reason)
        try:
            site.cluster.fence(node.name, reason)
            say(f"fenced: {reason}", node.name)
        except errors.LockstepError as error:
            notes.append(f"{node.name} could not be fenced: {error.message}")
    if left:
        names = ", ".join(node.name for node in left[:5]) + (" …" if len(left) > 5 else "")
        notes.append(f"{len(left)} more nodes deviate and were not fenced, to stay within one run's limit: {names}")
    return notes
