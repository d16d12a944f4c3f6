"""Reservations: holds on exact devices, one record per NVLink domain, committed by compare-and-swap.

`records` is pure (what a record is and how it may change), `stores` says what a store
must offer, `reservations` runs the protocol over any store, `kubernetes` is the store
in a cluster, `decisions` turns what a planner decided into what is reserved. May import:
lightkube in `kubernetes` only.
"""
