"""Our side of `audit_ssh`: the hosts on the command line read by our transport, outputs kept whole, nothing parsed."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from pathlib import Path

from bringup.transport import known_hosts
from bringup.transport.base import Failure, Identity, Patience, Target
from bringup.transport.ssh import Ssh
from lockstep.base.names import NodeName

CONCURRENCY = 50
PATIENCE = Patience().times(4)
"""The hosts share this machine's cores with us: what is measured is what they cost, not who is slow."""


def targets(folder: Path, hosts: list[str]) -> list[Target]:
    """How each host is reached; keys and known_hosts lie in the folder."""
    known = known_hosts.load([folder / "known_hosts"])
    identity = Identity(str(folder / "user"))
    return [Target(NodeName(host), host, 22, "root", (identity,), known.lookup(host), agent=False) for host in hosts]


def main() -> int:
    """``FOLDER HOST…``: writes FOLDER/out/HOST."""
    folder, hosts = Path(sys.argv[1]), sys.argv[2:]
    script = (folder / "script").read_text()
    transport = Ssh()
    told = threading.Lock()

    def one(target: Target) -> None:
        answer = transport.run(target, script, PATIENCE)
        if isinstance(answer, Failure):
            with told:
                print(target.node, answer, file=sys.stderr)
            return
        (folder / "out" / target.address).write_bytes(answer.stdout)

    with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
        for _ in pool.map(one, targets(folder, hosts)):
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
