"""Checks of a fleet file that need pinsets: unknown ones, ranges in them, SKUs that do not fit, missing or stale locks.

`inventory` cannot import this folder, so its loader takes these as further checks:
``inventory.load.fleet(name, settings, more=pinsets.checks.CHECKS)``.
"""

from __future__ import annotations

from inventory import checks
from lockstep.base import documents, issues
from lockstep.base.names import PoolName
from pinsets import components, load
from pinsets.facts import Coordinate

__all__ = ["CHECKS", "pinsets_and_locks", "waivers"]


def pinsets_and_locks(context: checks.Context, report: issues.Report) -> None:
    """Every pool's pinset can be read, fits its SKU, and has a lock made from it."""
    wanted = [
        load.Wanted(
            pool=PoolName(pool.name),
            pinset=pool.pinset,
            os=pool.os,
            sku=pool.sku,
            path=context.path,
            line=context.line("pools", index, "pinset"),
            fleet=context.file.fleet,
        )
        for index, pool in enumerate(context.file.pools)
        if documents.PLACEHOLDER not in (pool.pinset, pool.os, pool.sku) and pool.sku in context.skus
    ]
    load.locks_of(wanted, load.default_catalogue(context.checkout), report)


def waivers(context: checks.Context, report: issues.Report) -> None:
    """Every waiver names a coordinate whose component is registered, once per node."""
    known = components.load()
    told: set[tuple[int, str]] = set()
    for placed in context.nodes:
        if (placed.pool_index, placed.key) in told:
            continue
        told.add((placed.pool_index, placed.key))
        seen: set[str] = set()
        for index, waiver in enumerate(placed.node.waivers):
            line = context.node_line(placed, "waivers", index, "coordinate")
            try:
                coordinate = Coordinate.parse(waiver.coordinate)
            except ValueError as error:
                report.error(context.path, line, str(error), "write for example firmware.gpu[gpu3]@running")
                continue
            if coordinate.component not in known:
                hint = documents.did_you_mean(coordinate.component, sorted(known))
                report.error(context.path, line, f"no component is called `{coordinate.component}`", hint)
            if waiver.coordinate in seen:
                report.error(context.path, line, f"`{waiver.coordinate}` is waived twice for `{placed.key}`")
            seen.add(waiver.coordinate)


CHECKS: tuple[checks.Check, ...] = (pinsets_and_locks, waivers)
