"""Version sets: components, pins, locks, facts, compare and verdicts.

Pure, but for `repositories`, which fetches an APT index and runs gpgv for it, and for reading and writing own files.

May import: `inventory`, `lockstep.base`.
"""
