"""A plugin whose machines are a file: run by the real engine in place of `python -m stacks.provider`.

``SCRIPT`` names a folder. ``deviations.json`` (node → coordinate or word → observed) is what a reading finds;
an act writes a line to ``acts``, waits while ``hold`` exists, and then clears what it could mend.
With ``outcome.json`` (skew, failures, warnings) it ends as that says.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from inventory import model
from lockstep.base import settings
from stacks.provider import __main__ as plugin
from stacks.provider import acts, fleets, server
from tests.stacks import conftest

FOLDER = Path(os.environ["SCRIPT"])
MENDING = threading.Lock()
"""Pools are acted on side by side."""


def read(fleet: model.Fleet, say: Any) -> Any:
    """What `deviations.json` says."""
    return conftest.reading(fleet, json.loads((FOLDER / "deviations.json").read_text()))


def act(fleet: model.Fleet, pool: model.Pool, kubeconfig: Path | None, voice: acts.Voice) -> acts.Acted:
    """Notes that it was called, waits, mends."""
    with (FOLDER / "acts").open("a") as notes:
        notes.write(f"{pool.name}\n")
    voice.say(f"wave 1 of {pool.name}")
    while (FOLDER / "hold").exists():
        time.sleep(0.05)
    outcome = FOLDER / "outcome.json"
    if outcome.exists():
        skew, failures, warnings = json.loads(outcome.read_text())
        return acts.Acted(skew, tuple(failures), tuple(warnings))
    mine = {node.name for node in pool.nodes}
    with MENDING:
        left = json.loads((FOLDER / "deviations.json").read_text())
        kept = {node: what for node, what in left.items() if node not in mine}
        (FOLDER / "deviations.json").write_text(json.dumps(kept))
    return acts.Acted({}, (), ())


if __name__ == "__main__":
    where = settings.load()
    work = server.Work(where, read, act, fleets.Fleets(where), lambda fleet, pool: None, lambda fleet, pool, found: {})
    asyncio.run(plugin.serve(os.getppid(), work))
    sys.stderr.flush()
    os._exit(0)
