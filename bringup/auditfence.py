"""`audit --fence`: what an audit found out of step is kept from new jobs, within the limit of one run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bringup import consent, fencing, planning, situations
from bringup.cluster import Cluster
from bringup.cluster_views import NodeView
from bringup.joining import Joining
from bringup.reading import Reading
from bringup.results import Event
from bringup.stagework import Site
from bringup.words import Words
from inventory.model import Fleet, Pool
from lockstep.base import errors, journal
from lockstep.base.names import NodeName
from lockstep.base.settings import Settings
from pinsets import canonical, components

__all__ = ["fence"]


def fence(
    fleet: Fleet, reading: Reading, settings: Settings, joining: Joining | None, accepted: Collection[str]
) -> list[str]:
    """Fence the nodes of every pool that was read; what was done and what was left alone, as sentences.

    Per run and pool at most one NVLink domain or 2 % of its nodes, whichever is more. Nothing
    that could not be read, nothing that a common cause explains whose id is not ``accepted``, nothing that takes no
    jobs anyhow. Raises `errors.InputError` without a cluster, `errors.RefusedError` for facts that were not read now.
    """
    if not reading.live:
        raise errors.RefusedError("nodes are fenced only by facts read now", place="--fence", hint="leave --facts out")
    if joining is None:
        raise errors.InputError(
            "there is no cluster in which to fence", place="--fence", hint="set KUBECONFIG, or give --kubeconfig"
        )
    told: list[str] = []
    words = Words(accept=frozenset(accepted))
    with journal.open_for(settings, fleet.name) as book, Cluster.from_kubeconfig(joining.kubeconfig) as cluster:
        views = situations.views_of(cluster)
        for pool in fleet.pools:
            if pool.name in reading.comparisons:
                told += _pool(fleet, pool, reading, settings, book, cluster, views, words)
    return told


def _pool(
    fleet: Fleet,
    pool: Pool,
    reading: Reading,
    settings: Settings,
    book: journal.Journal,
    cluster: Cluster,
    views: Mapping[NodeName, NodeView] | None,
    words: Words,
) -> list[str]:
    told: list[str] = []
    lock = reading.locks[pool.name]
    read = reading.comparisons[pool.name]
    book.keep_lock(lock.full, lock.job, canonical.to_json(lock))
    picture = situations.picture(
        pool, reading.snapshot, lock, book, words, views, only=frozenset({*read.nodes, *read.apart})
    )
    known = components.load()
    plans = {name: planning.plan_node(situation, known) for name, situation in picture.situations.items()}

    def say(text: str, node: NodeName | None) -> None:
        told.append(f"{node}: {text}" if node is not None else text)

    def ignore(_: Event) -> None:
        """Nothing but fencing is done, and that is told."""

    site = Site(fleet, pool, lock, settings, book, known, cluster, None, ignore, 0)
    told += fencing.fence(site, picture, plans, say)
    return told or [f"pool {pool.name}: nothing to fence (limit {consent.fence_limit(pool)} nodes a run)"]
