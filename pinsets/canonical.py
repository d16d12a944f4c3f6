"""Canonical JSON and the digests over it: the same set gives the same digest on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from pinsets.model import Lock, LockedPackage, LockedPin, Scope

__all__ = ["digest", "full", "job", "text", "to_json", "wish"]


def text(value: Any) -> str:
    """``value`` as canonical JSON: keys sorted, no blanks, ASCII. Floats are refused, since they print in many ways."""
    _no_floats(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _no_floats(value: Any) -> None:
    if isinstance(value, float):
        raise TypeError("a float has no canonical form; write a string")
    if isinstance(value, dict):
        for part in value.values():
            _no_floats(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _no_floats(part)


def digest(value: Any) -> str:
    """sha256 over `text`, 64 hex."""
    return hashlib.sha256(text(value).encode()).hexdigest()


def _pin(pin: LockedPin) -> dict[str, Any]:
    return _without_empty({**pin.model_dump(mode="json"), "accept": sorted(pin.accept), "layers": sorted(pin.layers)})


def _without_empty(pin: dict[str, Any]) -> dict[str, Any]:
    """Words that came later are left out where they say nothing, so that the digests of older locks stay."""
    return {key: value for key, value in pin.items() if key != "instances" or value}


def _pins(pins: Iterable[LockedPin]) -> list[dict[str, Any]]:
    return sorted((_pin(pin) for pin in pins), key=lambda pin: str(pin["component"]))


def job(pins: Iterable[LockedPin]) -> str:
    """Digest over the pins whose scope is job or domain: what nodes of one gang must share."""
    shared = [pin for pin in pins if pin.scope in (Scope.JOB, Scope.DOMAIN)]
    keep = ("component", "layers", "version", "accept", "instance", "instances", "scope")
    return digest([{key: pin[key] for key in keep if key in pin} for pin in _pins(shared)])


def full(
    pinset: str,
    os: str,
    sku: Sequence[str],
    pins: Iterable[LockedPin],
    packages: Iterable[LockedPackage],
    external: Iterable[str],
    made_from: str,
) -> str:
    """Digest over everything a lock holds; repositories' addresses are not in it, so that a mirror changes nothing."""
    return digest(
        {
            "pinset": pinset,
            "os": os,
            "sku": sorted(sku),
            "pins": _pins(pins),
            "packages": sorted((package.model_dump(mode="json") for package in packages), key=lambda one: one["name"]),
            "external": sorted(external),
            "made_from": made_from,
        }
    )


def wish(os: str, sku: Sequence[str], pins: Iterable[LockedPin], carriers: dict[str, list[str]]) -> str:
    """Digest of what a pinset asks for on an OS, before packages are looked up: tells a stale lock."""
    return digest({"os": os, "sku": sorted(sku), "pins": _pins(pins), "carriers": carriers})


def to_json(lock: Lock) -> str:
    """The file's text: sorted keys, one entry per line for readable diffs, a newline at the end."""
    data = lock.model_dump(mode="json")
    data["pins"] = [_without_empty(pin) for pin in data["pins"]]
    return json.dumps(data, sort_keys=True, indent=1, ensure_ascii=True) + "\n"
