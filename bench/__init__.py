"""Benchmarks, one module each with a function ``rows(quick)``: ``python -m bench NAME [--quick] [--json FILE]``.

May import everything. Figures are recorded in docs/benchmarks.md with machine and command; no test is timed.
"""
