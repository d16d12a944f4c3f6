"""Version sets: components, pins, locks, facts, compare and verdicts.

Pure, but for `fetching`, which fetches indexes of repositories and runs gpgv for them, and for reading and writing own
files.

May import: `inventory`, `lockstep.base`.
"""
