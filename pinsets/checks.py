"""Checks of a fleet file that need pinsets: unknown ones, ranges in them, SKUs that do not fit, missing or stale locks.

`inventory` cannot import this folder, so its loader takes these as further checks:
``inventory.load.fleet(name, settings, more=pinsets.checks.CHECKS)``.
"""

from __future__ import annotations

from inventory import checks
from lockstep.base import documents, issues
from lockstep.base.names import PoolName
from pinsets import load

__all__ = ["CHECKS", "pinsets_and_locks"]


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


CHECKS: tuple[checks.Check, ...] = (pinsets_and_locks,)
