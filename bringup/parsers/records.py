"""The probe's JSON Lines → one `Record` per command.

>>> read(b'{"id":"kernel","rc":0,"ms":10,"out":"Ni44Cg==","err":""}\\n{"done":1}\\n').records["kernel"].text
'6.8\\n'
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.base import limits
from pinsets.facts import Unreadable

__all__ = ["Answer", "Record", "read"]

_ABANDONED, _EARLIER_ALIVE, _NO_TIME, _NOT_PERMITTED, _NOT_FOUND = -1, -2, -3, 126, 127
_FILE_TOO_LARGE = 128 + 25
"""A command that met the output limit ends by SIGXFSZ."""


@dataclass(frozen=True, slots=True)
class Record:
    """What one command gave."""

    id: str
    rc: int
    ms: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Standard output; bytes that are no UTF-8 become U+FFFD."""
        return self.out.decode("utf-8", "replace")

    @property
    def errors(self) -> str:
        """Standard error, read as `text` is."""
        return self.err.decode("utf-8", "replace")

    @property
    def complaint(self) -> str:
        """First line of standard error, else of the output; short."""
        for text in (self.err, self.out):
            for line in text.decode("utf-8", "replace").splitlines():
                if line.strip():
                    return line.strip()[:200]
        return f"ended with {self.rc} and said nothing"

    @property
    def not_found(self) -> bool:
        """Whether the program is not on the node."""
        return self.rc == _NOT_FOUND

    @property
    def unreadable(self) -> Unreadable | None:
        """Why the output must not be parsed at all; None when it may be."""
        if self.rc == _ABANDONED:
            return Unreadable.silent(self.ms / 1000)
        if self.rc in (_EARLIER_ALIVE, _NO_TIME):
            return Unreadable(self.complaint)
        if self.rc == _NOT_PERMITTED and self.err.startswith(b"needs root"):
            return Unreadable("needs root")
        if self.rc == _FILE_TOO_LARGE or len(self.out) >= limits.OUTPUT_BYTES_PER_COMMAND:
            return Unreadable(f"output cut at {limits.OUTPUT_BYTES_PER_COMMAND} bytes")
        return None


@dataclass(frozen=True, slots=True)
class Answer:
    """All records of one node."""

    records: Mapping[str, Record] = field(default_factory=dict)
    complete: bool = False
    """Whether the last line came."""
    problem: str | None = None
    """Why nothing of it can be used; None when there are records."""

    def get(self, name: str) -> Record | Unreadable:
        """A record that may be parsed, or why there is none."""
        record = self.records.get(name)
        if record is None:
            return Unreadable("not read: the answer was cut before it" if not self.complete else "not asked for")
        return record.unreadable or record


def read(stdout: bytes) -> Answer:
    """Take the stream apart. Lines that are not ours (a login banner) are skipped."""
    records: dict[str, Record] = {}
    complete = False
    failed: str | None = None
    for line in stdout.split(b"\n"):
        value = _object(line)
        if value is None:
            continue
        if "done" in value:
            complete = True
        elif "failed" in value:
            failed = str(value["failed"])[:200]
        elif (record := _record(value)) is not None:
            records[record.id] = record
    if records:
        return Answer(records, complete)
    if failed is not None:
        return Answer(problem=f"the script could not work there: {failed}")
    first = stdout[:80].decode("utf-8", "replace").strip()
    return Answer(problem=f"not the script's answer: {first!r}" if first else "the script gave nothing")


def _object(line: bytes) -> dict[str, object] | None:
    if not line.startswith(b"{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _record(value: dict[str, object]) -> Record | None:
    name, rc, ms = value.get("id"), value.get("rc"), value.get("ms")
    if not (isinstance(name, str) and isinstance(rc, int) and isinstance(ms, int)):
        return None
    try:
        out = base64.b64decode(str(value.get("out", "")), validate=True)
        err = base64.b64decode(str(value.get("err", "")), validate=True)
    except (binascii.Error, ValueError):
        return None
    return Record(name, rc, ms, out, err)
