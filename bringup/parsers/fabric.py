"""Fabric manager, NVLSM, IMEX and DCGM: versions on disk, logs, the state of an IMEX domain.

The layout of ``nvidia-imex-ctl -N -j`` is inferred from published examples (no sample with a licence exists).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from bringup.parsers import texts
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Unreadable

__all__ = ["condition", "dcgm", "imex_domain", "imex_domain_state", "imex_log", "imex_nodes", "mismatch", "nvlsm"]


def imex_log(text: str) -> tuple[Raw, bool]:
    """Version in the daemon's banner; whether it is cut to branch and ``.00`` (early builds) and so not comparable."""
    found = re.findall(r"IMEX version ([0-9]{1,4}(?:\.[0-9]{1,4}){1,2}) is running", text)
    if not found:
        return Unreadable("no banner of the daemon"), False
    return found[-1], bool(re.fullmatch(r"[0-9]{1,4}\.00", found[-1]))


def mismatch(text: str) -> tuple[str, str] | None:
    """(fabric manager's, driver's version) where its log says that they differ; None where it does not."""
    found = re.findall(
        r"interface version ([0-9]{1,4}(?:\.[0-9]{1,4}){1,2}) don'?t match with driver version"
        r" ([0-9]{1,4}(?:\.[0-9]{1,4}){1,2})",
        text,
    )
    return (found[-1][0], found[-1][1]) if found else None


def nvlsm(record: Record | Unreadable) -> Raw:
    """``nvlsm --version``, or the banner ``OpenSM 2025.06.5_…`` of its log."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer
    match = re.search(
        r"(?:OpenSM|nvlsm)\s*(?:version)?\s*:?\s*([0-9]{4}\.[0-9]{1,2}\.[0-9]{1,4})",
        answer.text + "\n" + answer.errors,
        re.I,
    )
    return match[1] if match is not None else Unreadable(answer.complaint)


def dcgm(record: Record | Unreadable) -> Raw:
    """``dcgmi -v`` and ``nv-hostengine --version``: ``dcgmi  version: 2.0.13``, or a block with ``Version :``."""
    answer = texts.given(record)
    if not isinstance(answer, Record):
        return answer
    for key, value in texts.key_values(answer.text):
        name = " ".join(key.lower().split())
        if name == "version" or name.endswith(" version"):
            match = texts.VERSION.match(value)
            if match is not None:
                return match[0]
    match = re.search(r"[Vv]ersion\s+([0-9]{1,4}(?:\.[0-9]{1,4}){1,2})", answer.text)
    return match[1] if match is not None else Unreadable(answer.complaint)


def _domain(record: Record | Unreadable) -> Mapping[str, object] | Absent | Unreadable:
    found = texts.json_of(record)
    if isinstance(found, (Absent, Unreadable)):
        return found
    return found if isinstance(found, dict) else Unreadable("its JSON is no object")


def _nodes(document: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    nodes = document.get("nodes")
    entries: Iterable[object] = nodes.values() if isinstance(nodes, dict) else nodes if isinstance(nodes, list) else ()
    return [entry for entry in entries if isinstance(entry, dict)]


def imex_domain(record: Record | Unreadable) -> Raw:
    """``nvidia-imex-ctl -N -j``: the daemons' version when all nodes of the domain that answer have the same."""
    document = _domain(record)
    if isinstance(document, Absent):
        return document
    if isinstance(document, Unreadable):
        return Unreadable(record.complaint) if isinstance(record, Record) else document
    values = {texts.known(entry.get("version")) for entry in _nodes(document)}
    versions = sorted(value for value in values if value and texts.VERSION.fullmatch(value))
    if len(versions) == 1:
        return versions[0]
    reason = f"the domain runs {', '.join(versions)}" if versions else "it names no version"
    return Unreadable(reason)


def imex_domain_state(record: Record | Unreadable) -> Mapping[str, str]:
    """``state`` of the domain (``UP``, ``DEGRADED``, ``DOWN``) and ``nodes`` that it knows; empty without an answer."""
    document = _domain(record)
    if isinstance(document, (Absent, Unreadable)):
        return {}
    found: dict[str, str] = {}
    state = texts.known(document.get("status"))
    if state:
        found["state"] = state.upper()[:40]
    nodes = _nodes(document)
    if nodes:
        found["nodes"] = str(len(nodes))
        waiting = [entry for entry in nodes if str(entry.get("status", "")).upper() != "READY"]
        found["waiting"] = str(len(waiting))
    return found


def imex_nodes(text: str | None) -> Raw:
    """Hash of nodes_config.cfg, addresses in file order (the order is part of it), comments and blanks taken off."""
    if text is None:
        return ABSENT
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    entries = {f"{index:04}": line for index, line in enumerate(filter(None, lines))}
    return texts.fingerprint(entries)[0] if entries else Unreadable("nodes_config.cfg is empty")


_ZERO = "00000000-0000-0000-0000-000000000000"


def condition(nvlink: str, values: Mapping[str, str]) -> tuple[bool | None, str]:
    """(whether one GPU's fabric is good, why) on a machine of that ``nvlink`` kind (``rack``, ``node``, ``none``).

    ``values``: ``state``, ``status``, ``cluster-uuid`` as `smi.fabric_of` gives them. None: there is no fabric to
    judge (PCIe boards, and A100, whose driver reports none). An HGX box reports the zero uuid and is right to.
    """
    state, status = values.get("state"), values.get("status")
    if nvlink == "none" or state is None:
        return None, "no fabric is reported"
    if state.lower() == "in progress":
        return False, "not registered: fabric manager or NVLSM does not run, or is of another version"
    if state.lower() != "completed" or (status or "").lower() != "success":
        return False, f"registration {state.lower()}: {status or 'no status'}"
    if nvlink == "rack" and values.get("cluster-uuid", _ZERO) == _ZERO:
        return False, "registered, but in no NVLink domain (zero cluster uuid)"
    return True, "registered"
