"""Lockstep keeps a GPU fleet in step: one version set per pool, proven on every node and every GPU."""

__all__ = ["__version__"]

__version__ = "0.1.0"
