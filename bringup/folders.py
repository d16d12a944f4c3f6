"""Outputs of the probe that somebody else gathered: a folder with one file per node, by clush, pdsh, Ansible or srun.

    lockstep probe print > probe.sh
    clush -w @gpu --outdir outputs 'sh -s' < probe.sh                          # outputs/NODE
    ansible gpu -m raw -a "$(cat probe.sh)" --tree outputs                      # outputs/NODE, as JSON
    srun --ntasks-per-node=1 --output=outputs/%N.jsonl sh probe.sh              # outputs/NODE.jsonl

The node is the file's name without a known suffix. Files of other kinds are named, not skipped in silence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bringup.parsers import node as node_parser
from bringup.parsers import records
from inventory.model import Sku
from lockstep.base import errors, issues, limits
from lockstep.base.names import ComponentName, NodeName
from lockstep.base.plaintext import is_host_name, visible
from pinsets.facts import NodeFacts, Snapshot
from pinsets.model import Component

__all__ = ["read"]

_SUFFIXES: Final = (".jsonl", ".json", ".out", ".txt", ".log")


def read(
    place: Path, components: Mapping[ComponentName, Component], skus: Mapping[NodeName, Sku] | None = None
) -> Snapshot:
    """Every file of the folder as one node. A file that holds no output of the probe is an unreachable node.

    Raises `errors.InputError` for names that are no hosts and for two files of one node,
    `errors.NotMeasuredError` for an empty folder.
    """
    report = issues.Report()
    found: dict[NodeName, NodeFacts] = {}
    try:
        files = sorted(path for path in place.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise errors.InputError(f"cannot be read: {error.strerror}", place=str(place)) from error
    for path in files:
        name = _node(path.name)
        shown = f"{place}/{visible(path.name)}"
        if not is_host_name(name):
            report.error(shown, None, "its name is no host name", "call it NODE.jsonl")
        elif not path.is_file():
            report.error(shown, None, "is no file, so its node would be missing", "take it out of the folder")
        elif name in found:
            report.error(shown, None, f"there are two files of node {name}", "keep one of them")
        else:
            found[NodeName(name)] = _file(path, NodeName(name), components, (skus or {}).get(NodeName(name)))
    report.raise_if_errors("the folder of outputs")
    if not found:
        raise errors.NotMeasuredError(
            "there is no output in it", place=str(place), hint="one file per node, NODE.jsonl: lockstep probe print"
        )
    return Snapshot(min(facts.observed_at for facts in found.values()), found)


def _node(name: str) -> str:
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def _file(path: Path, name: NodeName, components: Mapping[ComponentName, Component], sku: Sku | None) -> NodeFacts:
    read_at = path.stat().st_mtime
    try:
        with path.open("rb") as file:
            content = file.read(limits.OUTPUT_BYTES_PER_NODE * 2)
            whole = os.fstat(file.fileno()).st_size == len(content)
    except OSError as error:
        return node_parser.unreachable(name, f"its output cannot be read: {error.strerror}", read_at)
    if not whole:
        return node_parser.unreachable(name, f"its output is longer than {len(content)} bytes", read_at)
    answer = records.read(_unwrapped(content))
    return node_parser.facts(name, answer, components, sku=sku, observed_at=read_at)


def _unwrapped(content: bytes) -> bytes:
    """What Ansible's ``--tree`` wraps in JSON of its own; anything else as it is."""
    if not content.lstrip().startswith(b"{"):
        return content
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    inner = value.get("stdout") if isinstance(value, dict) else None
    return inner.encode("utf-8", "replace") if isinstance(inner, str) else content
