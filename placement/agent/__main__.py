"""``python -m placement.agent --to http://127.0.0.1:8080 --node NAME [--trace FILE] [--seconds 10]``."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path

import httpx

from lockstep.base import errors
from placement.agent import pushing, sources

__all__ = ["main"]

TOKEN = "LOCKSTEP_TELEMETRY_TOKEN"  # noqa: S105 - the name of a variable, not a secret


def main(argv: list[str] | None = None) -> int:
    """The agent's command line; exit codes as everywhere."""
    parser = argparse.ArgumentParser(prog="placement.agent", description="Reads the GPUs of this node, pushes samples.")
    parser.add_argument("--to", required=True, help="address of the intake")
    parser.add_argument("--node", default=socket.gethostname(), help="name of this node in the fleet")
    parser.add_argument("--trace", type=Path, help="replay this recording instead of reading NVML")
    parser.add_argument("--seconds", type=float, default=pushing.SECONDS, help="between rounds")
    given = parser.parse_args(argv)
    token = os.environ.get(TOKEN)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        source = sources.open_source(given.trace)
    except errors.LockstepError as error:
        print(error.diagnostics(), file=sys.stderr)
        return int(error.exit_code)
    with httpx.Client(base_url=given.to, headers=headers, timeout=5.0, trust_env=False) as client:
        pusher = pushing.Pusher(client, given.node)
        pushing.run(source, pusher, seconds=given.seconds)
    return int(errors.ExitCode.NOT_MEASURED if pusher.lost else errors.ExitCode.IN_STEP)


if __name__ == "__main__":
    sys.exit(main())
