"""The watcher: labels the Nodes whose lab node lives, so that kwok serves these and no others.

Run as ``python -m lab.control_plane_watch STATE OWNER``. OWNER is ``PID:START`` of a process
that the control plane must not outlive, or empty. Standard library only: it stays for as
long as the lab does.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import signal
import ssl
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab import control_plane_processes as processes
from lab.liveness import ALIVE_LABEL
from lockstep.base import errors

__all__ = ["Api", "main", "turn"]

PERIOD_SECONDS = 1.0
"""Far below the Node lease: a lab node that reboots in two seconds never turns NotReady, as a real one."""
ASK_SECONDS = 5.0

log = logging.getLogger("watcher")


class Api:
    """The few requests that the watcher makes, over one kept connection."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]))
        self._address = cluster["server"].removeprefix("https://")
        self._headers = {"Authorization": f"Bearer {user['token']}"}
        self._connection: http.client.HTTPSConnection | None = None

    def nodes(self) -> dict[str, str | None]:
        """Node name → value of the alive label (None: no label); only metadata is asked for."""
        kind = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        # resourceVersion=0: from the API server's own cache, which costs etcd nothing.
        answer = self._ask("GET", "/api/v1/nodes?resourceVersion=0", {"Accept": kind})
        return {
            item["metadata"]["name"]: item["metadata"].get("labels", {}).get(ALIVE_LABEL)
            for item in answer["items"] or ()  # an empty list is sent as null
        }

    def label(self, node: str, value: str | None) -> None:
        """Set the alive label, or take it away."""
        body = json.dumps({"metadata": {"labels": {ALIVE_LABEL: value}}})
        kind = {"Content-Type": "application/merge-patch+json", "Accept": "application/json"}
        self._ask("PATCH", f"/api/v1/nodes/{node}?fieldManager=lockstep-lab", kind, body)

    def _ask(self, method: str, path: str, headers: dict[str, str], body: str | None = None) -> Any:
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(self._address, timeout=ASK_SECONDS, context=self._context)
        try:
            self._connection.request(method, path, body=body, headers=self._headers | headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._connection = None
            raise
        if answer.status != 200:
            raise OSError(f"{method} {path} answers {answer.status}")
        return json.loads(text)


def turn(api: Api, alive: Callable[[str], bool]) -> None:
    """Make the label of every Node equal to whether its lab node lives. Raises OSError when the API is away."""
    for node, label in api.nodes().items():
        wanted = "true" if alive(node) else None
        if label != wanted:
            log.info("%s %s", node, "lives" if wanted else "does not live")
            api.label(node, wanted)


def main(state: Path, owner: str) -> int:
    """Go round until told to end, or until the owner is gone; then end everything else first."""
    from lab import liveness

    folder = state / "control-plane"
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    signal.signal(signal.SIGINT, lambda *_: told.set())
    api: Api | None = None
    while not told.wait(PERIOD_SECONDS):
        if owner and not _lives(owner):
            from lab import control_plane  # not before: its imports would double the watcher's memory

            log.info("process %s, which owns this control plane, is gone", owner)
            try:
                control_plane.stop(state, log.info, spare=os.getpid())
            except errors.BusyError:
                continue  # another process starts or stops it at this moment
            return 0
        try:
            api = api or Api(folder / "watcher.kubeconfig")
            turn(api, lambda node: liveness.alive(state, node))
        except (OSError, http.client.HTTPException) as error:
            # The API server is starting, stopping or restarting: its own health says so.
            log.info("%s", error)
        (folder / "watcher.beat").touch()
    return 0


def _lives(owner: str) -> bool:
    pid, _, started = owner.partition(":")
    return str(processes.start_time(int(pid))) == started


def _decoded(text: str) -> str:
    import base64

    return base64.b64decode(text).decode()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
