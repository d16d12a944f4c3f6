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


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 3600:
        raise argparse.ArgumentTypeError(f"seconds between rounds, from 0 to an hour, got {text}")
    return value


def _address(text: str) -> str:
    """An http or https URL with a host. Raises `errors.InputError`."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise errors.InputError(f"not an address: {error}", place="--to") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise errors.InputError(f"not an address: {text!r}", place="--to", hint="http://HOST:PORT")
    return text


def main(argv: list[str] | None = None) -> int:
    """The agent's command line; exit codes as everywhere."""
    parser = argparse.ArgumentParser(prog="placement.agent", description="Reads the GPUs of this node, pushes samples.")
    parser.add_argument("--to", required=True, help="address of the intake")
    parser.add_argument("--node", default=socket.gethostname(), help="name of this node in the fleet")
    parser.add_argument("--trace", type=Path, help="replay this recording instead of reading NVML")
    parser.add_argument("--seconds", type=_seconds, default=pushing.SECONDS, help="between rounds")
    given = parser.parse_args(argv)
    token = os.environ.get(TOKEN)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        source = sources.open_source(given.trace)
    except errors.LockstepError as error:
        print(error.diagnostics(), file=sys.stderr)
        return int(error.exit_code)
    try:
        client = httpx.Client(base_url=_address(given.to), headers=headers, timeout=5.0, trust_env=False)
    except errors.LockstepError as error:
        print(error.diagnostics(), file=sys.stderr)
        return int(error.exit_code)
    with client:
        pusher = pushing.Pusher(client, given.node)
        try:
            pushing.run(source, pusher, seconds=given.seconds)
        except KeyboardInterrupt:
            return int(errors.ExitCode.INTERRUPTED)
    return int(errors.ExitCode.NOT_MEASURED if pusher.lost else errors.ExitCode.IN_STEP)


if __name__ == "__main__":
    sys.exit(main())
