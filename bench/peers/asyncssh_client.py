"""asyncssh as its users tune it: keys and known_hosts parsed once, no agent, no configuration files, 50 at once.

Runs in an environment of its own: ``FOLDER HOST…``, writes FOLDER/out/HOST.
"""

import asyncio
import sys
from pathlib import Path

import asyncssh


async def main(folder: Path, hosts: list[str]) -> None:
    """All hosts."""
    known = asyncssh.read_known_hosts(str(folder / "known_hosts"))
    key = asyncssh.read_private_key(str(folder / "user"))
    script = (folder / "script").read_bytes()
    gate = asyncio.Semaphore(50)

    async def one(host: str) -> None:
        async with (
            gate,
            asyncssh.connect(
                host,
                username="root",
                known_hosts=known,
                client_keys=[key],
                agent_path=None,
                config=None,
                kex_algs=["curve25519-sha256"],
                encryption_algs=["aes128-gcm@openssh.com"],
                connect_timeout=60,
                login_timeout=60,
            ) as connection,
        ):
            done = await connection.run("sh -s", input=script, encoding=None)
            (folder / "out" / host).write_bytes(done.stdout)

    await asyncio.gather(*(one(host) for host in hosts))


asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
