"""The sweep of `audit_ssh`: good and bad hosts read as `lockstep audit` reads them; prints one JSON object.

``FOLDER DEADLINE GOOD… -- BAD…``, BAD as ``ADDRESS:PORT``. Times are seconds from the start of the sweep.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from bench import audit_ssh_client
from bringup import sweep
from bringup.transport.base import Patience
from bringup.transport.ssh import Ssh
from lockstep.base.names import NodeName
from pinsets import components


def main() -> int:
    """Runs it once."""
    folder, patience, rest = Path(sys.argv[1]), Patience.within(float(sys.argv[2])), sys.argv[3:]
    cut = rest.index("--")
    good, bad = rest[:cut], rest[cut + 1 :]
    targets = audit_ssh_client.targets(folder, good)
    for number, place in enumerate(bad):
        address, _, port = place.rpartition(":")
        targets.append(replace(targets[0], node=NodeName(f"bad-{number}"), address=address, port=int(port)))
    ends = {False: 0.0, True: 0.0}
    answered = {False: 0, True: 0}
    last_good = 0.0
    started = time.monotonic()

    def told(progress: sweep.Progress) -> None:
        nonlocal last_good
        now = time.monotonic() - started
        ends[progress.second_pass] = now
        if progress.failure is None:
            answered[progress.second_pass] += 1
            if not progress.node.startswith("bad-"):
                last_good = now

    requests = [sweep.Request(target) for target in targets]
    swept = sweep.read(requests, Ssh(), components.load(), patience=patience, progress=told)
    lost = [node for node in swept.failures if not node.startswith("bad-")]
    print(
        json.dumps(
            {
                "first": ends[False],
                "second": ends[True] - ends[False] if ends[True] else 0.0,
                "last_good": last_good,
                "lost": len(lost),
                "good_second": sum(1 for node in swept.second_pass if not node.startswith("bad-")),
                "answered": answered[False],
                "answered_second": answered[True],
                "kinds": sorted({str(failure.kind) for failure in swept.failures.values()}),
                "parsed": sum(1 for facts in swept.snapshot.nodes.values() if facts.boot_id is not None),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
