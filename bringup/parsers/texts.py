"""What all parsers share: how a version looks, ``Key : value`` lines, JSON behind noise, hashes of settings."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from bringup.parsers.records import Record
from pinsets.facts import ABSENT, Absent, Unreadable

__all__ = [
    "NOTHING",
    "VERSION",
    "Raw",
    "answered",
    "distinct",
    "fingerprint",
    "given",
    "json_of",
    "key_values",
    "known",
    "number",
    "tool_version",
    "version_key",
]

Raw = str | Absent | Unreadable
"""An observation before normalisation."""

VERSION: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9A-Za-z]{1,40})+(?:[-+~_][0-9A-Za-z.+~_-]{1,60})?")
"""Two parts or more; never split on a fixed count (driver 595.80 is whole)."""
NOTHING: Final = frozenset(("", "n/a", "[n/a]", "none", "unknown", "not supported", "[not supported]", "--", "null"))
"""What vendor tools print where they have no value."""
_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def known(text: object) -> str | None:
    """A value as text; None where it is only a word for nothing. Longer than 200 characters is no value."""
    if not isinstance(text, str):
        return str(text) if isinstance(text, (int, float)) and not isinstance(text, bool) else None
    clean = _ESCAPE.sub("", text).strip()
    lowered = clean.lower()
    if lowered in NOTHING or lowered.startswith("deprecated") or "has been deprecated" in lowered or len(clean) > 200:
        return None
    return clean


def given(record: Record | Unreadable) -> Record | Absent | Unreadable:
    """The record where its output may be parsed; Absent where the program is not on the node."""
    if isinstance(record, Unreadable):
        return record
    return ABSENT if record.not_found else record


def answered(record: Record | Unreadable) -> Record | Unreadable:
    """As `given` where a program that is missing is a reason and no value."""
    answer = given(record)
    return Unreadable("not installed") if isinstance(answer, Absent) else answer


def tool_version(record: Record | Unreadable, after: str = "") -> Raw:
    """First version behind the words ``after`` in what ``TOOL --version`` printed; absent when it is not there."""
    answer = given(record)
    if not isinstance(answer, Record):
        return answer
    # Fabric manager prints to either stream, depending on its branch.
    text = answer.text + "\n" + answer.errors
    place = text.lower().find(after.lower())
    match = VERSION.search(text, place + len(after)) if place >= 0 else None
    if answer.rc != 0 or match is None:
        return Unreadable(answer.complaint)
    return match[0]


def key_values(text: str, separator: str = ":") -> Iterator[tuple[str, str]]:
    """``Key : value`` lines, blanks and terminal escapes taken off; lines without the separator are skipped."""
    for line in text.splitlines():
        key, found, value = _ESCAPE.sub("", line).partition(separator)
        if found and key.strip():
            yield key.strip(), value.strip()


def json_of(record: Record | Unreadable) -> object | Absent | Unreadable:
    """The JSON document in a command's output; warnings in front of the first bracket or brace are cut off."""
    answer = given(record)
    if not isinstance(answer, Record):
        return answer
    text = answer.text
    places = sorted({place for place in (text.find("["), text.find("{")) if place >= 0})
    for place in places:
        try:
            found: object = json.JSONDecoder().raw_decode(text, place)[0]
            return found
        except (ValueError, RecursionError):
            # A warning may hold a bracket of its own: the document may begin at the other one.
            continue
    return Unreadable(answer.complaint if answer.rc else "no JSON in its output")


def number(text: str | None, unit: str) -> str | None:
    """``700.00 W`` → ``700``; None for another unit or no number."""
    match = re.fullmatch(r"([0-9]{1,9})(?:\.([0-9]{1,4}))? ?" + re.escape(unit), text or "")
    if match is None:
        return None
    rest = (match[2] or "").rstrip("0")
    return match[1] + (f".{rest}" if rest else "")


def distinct(values: Iterable[str | None]) -> str:
    """Sorted, each once, comma-joined; empty without any."""
    return ",".join(sorted({value for value in values if value}))


def fingerprint(values: Mapping[str, str]) -> tuple[str, str]:
    """(``sha256:`` and 16 hex digits, the text behind it: sorted ``name=value``, semicolon-joined)."""
    text = ";".join(f"{name}={value}" for name, value in sorted(values.items()))
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}", text


def version_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key in which 6.8.0-100 comes after 6.8.0-60: numbers as numbers, letters below numbers."""
    parts = re.findall(r"[0-9]+|[A-Za-z]+", text)
    # Numbers by length, then by digits: converting thousands of digits would be refused.
    return tuple(_part(part) for part in parts)


def _part(part: str) -> tuple[int, int, str]:
    if not part.isdecimal():
        return 0, 0, part
    bare = part.lstrip("0")
    return 1, len(bare), bare
