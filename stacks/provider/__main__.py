"""`python -m stacks.provider`: serve on a loopback port of our own choice and print it, as the engine expects."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import grpc

from lockstep.base import errors
from stacks.provider import guardian, server, stubs

MESSAGE_BYTES = 400 * 1024 * 1024
"""The engine's own limit: a pool of 100,000 nodes is 4 MB, the default limit is as much."""


async def serve(engine: int, work: server.Work) -> None:
    """Serve until the engine (its pid) asks us to end, by SIGTERM or SIGINT, or is gone."""
    limits = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)]
    listening = grpc.aio.server(options=limits)
    stubs.provider_grpc.add_ResourceProviderServicer_to_server(server.Provider(work), listening)
    port = listening.add_insecure_port("127.0.0.1:0")
    await listening.start()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    print(port, flush=True)
    # The engine shows whatever comes after the port as output of the program: nothing shall.
    sys.stdout = sys.stderr
    guardian.watch(engine)
    await ending.wait()
    guardian.end_acts()
    await listening.stop(grace=None)


def main() -> int:
    """The exit code."""
    engine = os.getppid()
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    try:
        asyncio.run(serve(engine, server.Work.real()))
    except errors.LockstepError as error:
        print(error.diagnostics(), file=sys.stderr)
        return int(error.exit_code)
    # Threads of an act that was ended may still hang in a socket; the engine waits for nobody.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
