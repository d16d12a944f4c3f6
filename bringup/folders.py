"""Outputs of the probe that somebody else gathered: a folder with one file per node, by clush, pdsh, Ansible or srun.

    lockstep probe print > probe.sh
    clush -w @gpu --outdir outputs 'sh -s' < probe.sh                          # outputs/NODE
    ansible gpu -m raw -a "$(cat probe.sh)" --tree outputs                      # outputs/NODE, as JSON
    srun --ntasks-per-node=1 --output=outputs/%N.jsonl sh probe.sh              # outputs/NODE.jsonl

The node is the file's name without a known suffix. Beside it, or alone for what nobody can log in to, stands
NODE.nvfwupd: what `nvfwupd … show_version` printed. Files of other kinds are named, not skipped in silence.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bringup.parsers import node as node_parser
from bringup.parsers import records
from bringup.sources import nvfwupd
from inventory.model import Sku
from lockstep.base import errors, issues, limits
from lockstep.base.names import ComponentName, NodeName
from lockstep.base.plaintext import is_host_name, visible
from pinsets import sources
from pinsets.facts import NodeFacts, Snapshot
from pinsets.model import Component

__all__ = ["read"]

_SUFFIXES: Final = (".jsonl", ".json", ".out", ".txt", ".log")
_FIRMWARE: Final = ".nvfwupd"


def read(
    place: Path, components: Mapping[ComponentName, Component], skus: Mapping[NodeName, Sku] | None = None
) -> Snapshot:
    """Every file of the folder as one node. A file that holds no output of the probe is an unreachable node.

    Raises `errors.InputError` for names that are no hosts and for two files of one node,
    `errors.NotMeasuredError` for an empty folder.
    """
    report = issues.Report()
    outputs: dict[NodeName, Path] = {}
    firmware: dict[NodeName, Path] = {}
    try:
        files = sorted(path for path in place.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise errors.InputError(f"cannot be read: {error.strerror}", place=str(place)) from error
    for path in files:
        name, kind = _node(path.name)
        files_of = firmware if kind == _FIRMWARE else outputs
        shown = f"{place}/{visible(path.name)}"
        if not is_host_name(name):
            report.error(shown, None, "its name is no host name", "call it NODE.jsonl")
        elif not path.is_file():
            report.error(shown, None, "is no file, so its node would be missing", "take it out of the folder")
        elif name in files_of:
            report.error(shown, None, f"there are two files of node {name}", "keep one of them")
        else:
            files_of[NodeName(name)] = path
    report.raise_if_errors("the folder of outputs")
    found: dict[NodeName, NodeFacts] = {}
    for node in sorted(outputs.keys() | firmware.keys()):
        sku = (skus or {}).get(node)
        read = [_file(outputs[node], node, components, sku)] if node in outputs else []
        read += [_firmware(firmware[node], node, sku)] if node in firmware else []
        found[node] = functools.reduce(sources.joined, read)
    if not found:
        raise errors.NotMeasuredError(
            "there is no output in it", place=str(place), hint="one file per node, NODE.jsonl: lockstep probe print"
        )
    return Snapshot(min(facts.observed_at for facts in found.values()), found)


def _node(name: str) -> tuple[str, str]:
    """(node, kind of the file)."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            name = name.removesuffix(suffix)
            break
    return (name.removesuffix(_FIRMWARE), _FIRMWARE) if name.endswith(_FIRMWARE) else (name, "")


def _file(path: Path, name: NodeName, components: Mapping[ComponentName, Component], sku: Sku | None) -> NodeFacts:
    content, read_at = _content(path)
    if isinstance(content, str):
        return node_parser.unreachable(name, content, read_at)
    answer = records.read(_unwrapped(content))
    return node_parser.facts(name, answer, components, sku=sku, observed_at=read_at)


def _firmware(path: Path, name: NodeName, sku: Sku | None) -> NodeFacts:
    content, read_at = _content(path)
    if isinstance(content, str):
        return node_parser.unreachable(name, content, read_at)
    return nvfwupd.facts(name, content, sku, read_at)


def _content(path: Path) -> tuple[bytes | str, float]:
    """(what stands in it, or why that cannot be had; when it was written)."""
    read_at = path.stat().st_mtime
    try:
        with path.open("rb") as file:
            content = file.read(limits.OUTPUT_BYTES_PER_NODE * 2)
            whole = os.fstat(file.fileno()).st_size == len(content)
    except OSError as error:
        return f"its output cannot be read: {error.strerror}", read_at
    return content if whole else f"its output is longer than {len(content)} bytes", read_at


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
