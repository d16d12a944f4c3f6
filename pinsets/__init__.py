"""Version sets: components, pins, locks, facts, compare and verdicts. Pure: opens no socket, runs no program.

May import: `inventory`, `lockstep.base`.
"""
