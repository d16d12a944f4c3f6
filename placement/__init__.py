"""Decides which exact GPUs a job gets, and holds them until the cluster has bound them.

Gates are pass or out, headroom combines by minimum, fragmentation breaks ties; the
ledger makes every hold atomic. May import: `pinsets`, `inventory`, `lockstep.base`,
numpy, scipy; each edge (telemetry, agent, simulate, ledger.kubernetes) its own library.
"""
