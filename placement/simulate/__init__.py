"""Replays of traces and made-up fleets through the same policies and planner that serve a cluster.

May import: everything of `placement`, matplotlib.
"""
