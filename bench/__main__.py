"""``python -m bench NAME [--quick] [--json FILE]``; without NAME the list."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import platform
import sys
from pathlib import Path

import bench
from bench import rows as rows_module
from lockstep.base import errors

__all__ = ["main", "names"]


def names() -> dict[str, str]:
    """Benchmark → first line of its docstring: every module here with a function ``rows``."""
    found = {}
    for info in pkgutil.iter_modules(bench.__path__):
        source = Path(bench.__path__[0], f"{info.name}.py").read_text(encoding="utf-8")
        if "\ndef rows(" in source:
            found[info.name] = source.split('"""')[1].strip().splitlines()[0]
    return found


def main(argv: list[str] | None = None) -> int:
    """Run one benchmark: rows as they come, the table at the end."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks against the best peers.")
    parser.add_argument("name", nargs="?", help="which one; without it the list is printed")
    parser.add_argument("--quick", action="store_true", help="the small cases only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    parser.add_argument("--traces", type=Path, metavar="DIR", help="placement_openb: other traces of the same form")
    given = parser.parse_args(argv)
    if given.traces is not None:
        os.environ["LOCKSTEP_BENCH_TRACES"] = str(given.traces)
    known = names()
    if given.name is None:
        print("\n".join(f"{name:12} {line}" for name, line in sorted(known.items())))
        return int(errors.ExitCode.IN_STEP)
    if given.name not in known:
        parser.error(f"there is no benchmark {given.name}; known: {', '.join(sorted(known))}")
    print(f"{given.name} on {os.cpu_count()} CPUs, Python {platform.python_version()}", file=sys.stderr)
    done = []
    try:
        for row in importlib.import_module(f"bench.{given.name}").rows(given.quick):
            done.append(row)
            beside = "" if row.peer is None else f" ({row.peer_name} {row.peer:.4g})"
            print(f"  {row.case} {row.what}: {row.ours:.4g} {row.unit}{beside}", file=sys.stderr, flush=True)
            if given.json is not None:
                # As it grows: what was measured is kept when the rest is stopped.
                rows_module.write(done, given.json)
    except errors.LockstepError as error:
        print(error.diagnostics(), file=sys.stderr)
        return int(error.exit_code)
    finally:
        if done:
            print(rows_module.table(done))
        if given.json is not None:
            rows_module.write(done, given.json)
    return int(errors.ExitCode.IN_STEP)


if __name__ == "__main__":
    sys.exit(main())
