"""Our side of `audit_ssh`: one sweep of the hosts on the command line, facts parsed, one line per answer printed."""

from __future__ import annotations

import sys
from pathlib import Path

from bringup import sweep
from bringup.transport import known_hosts
from bringup.transport.base import Identity, Target
from bringup.transport.ssh import Ssh
from lockstep.base.names import NodeName
from pinsets import components


def main() -> int:
    """``FOLDER HOST…``: keys and known_hosts lie in the folder."""
    folder, *hosts = sys.argv[1:]
    known = known_hosts.load([Path(folder, "known_hosts")])
    identity = Identity(str(Path(folder, "user")))
    requests = [
        sweep.Request(Target(NodeName(host), host, 22, "root", (identity,), known.lookup(host), agent=False))
        for host in hosts
    ]
    swept = sweep.read(requests, Ssh(), components.load(), concurrency=50)
    for facts in swept.snapshot.nodes.values():
        if facts.unreachable is None and facts.boot_id is not None:
            print('{"done":', len(facts.facts), "}", facts.node)
    for name, failure in swept.failures.items():
        print(name, failure, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
