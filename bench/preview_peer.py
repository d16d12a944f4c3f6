"""The peer of `bench.preview`: one `pulumi.dynamic` resource per node, its facts read from a file on refresh."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pulumi
from pulumi import dynamic

PINNED = "580.105.08"


class NodeProvider(dynamic.ResourceProvider):
    """Keeps a node on its pinned driver; here it only reads and compares."""

    def _running(self, name: str) -> str:
        import json
        import os

        with open(os.environ["FACTS"]) as file:
            running: str = json.load(file)[name]
        return running

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Takes the node as it is."""
        return dynamic.CreateResult(props["name"], {**props, "driver": self._running(props["name"])})

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Facts now."""
        return dynamic.ReadResult(id_, {**props, "driver": self._running(props["name"])})

    def diff(self, id_: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Out of step when another driver runs than the pinned one."""
        return dynamic.DiffResult(changes=olds["driver"] != news["pinned"])


class Node(dynamic.Resource):
    """One node."""

    def __init__(self, name: str) -> None:
        super().__init__(PROVIDER, name, {"name": name, "pinned": PINNED, "driver": None})


# The SDK (3.272) patches pickle anew for every resource, each patch around the last, and fails after some 310 of them.
# One provider serves all nodes, so it is serialised once: the peer at its best.
PROVIDER = NodeProvider()
dynamic.dynamic.serialize_provider = functools.cache(dynamic.dynamic.serialize_provider)

for node in json.loads(Path(os.environ["FACTS"]).read_text()):
    Node(node)
pulumi.export("nodes", True)
