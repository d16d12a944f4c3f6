"""What was found on a node, as an in-toto statement: who it is, which lock it was held to, what it said, the verdict.

Pure. `signing` puts a statement into a signed envelope and takes it out again. The
subject is a place and the machine in it (slot, chassis serial, GPU serials), never a
host name alone. Form: in-toto Statement v1, https://in-toto.io/Statement/v1.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from lockstep.base.documents import Model
from pinsets import canonical
from pinsets.facts import NodeFacts, Unreadable, Version
from pinsets.findings import NodeVerdict, Verdict
from pinsets.model import Lock

__all__ = [
    "PREDICATE_TYPE",
    "STATEMENT_TYPE",
    "LockDigests",
    "Predicate",
    "Statement",
    "Subject",
    "facts_digest",
    "file_name",
    "of_node",
    "payload",
    "problems",
]

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://lockstep.dev/attestation/node/v1"
_LONGEST: Final = 200
"""Characters of a file name; file systems take 255 bytes."""


class LockDigests(Model):
    """The lock that a node was compared with; during a roll-out not always its pool's, then the digest alone."""

    full: str
    job: str | None = None
    pinset: str | None = None
    os: str | None = None


class Annotations(Model):
    """Who the subject is, readable; its digest is over these."""

    slot: str
    serial: Annotated[str | None, Field(description="Chassis serial; null: could not be read.")]
    gpus: Annotated[dict[str, str], Field(description="Slot of a GPU → its serial, as far as they could be read.")]


class Subject(Model):
    """A machine in its place."""

    name: Annotated[str, Field(description="The slot; without a fleet file the host's name.")]
    digest: dict[Literal["sha256"], str]
    annotations: Annotations


class Predicate(Model):
    """What was found."""

    fleet: str | None
    pool: str
    node: str
    verdict: Verdict
    lock: LockDigests | None
    facts: dict[Literal["sha256"], str]
    boot_id: Annotated[str | None, Field(alias="bootId")]
    observed_at: Annotated[str, Field(alias="observedAt", description="When the node was read, RFC 3339, UTC.")]
    findings: Annotated[tuple[str, ...], Field(description="Ids of the node's own findings.")]


class Statement(Model):
    """The whole."""

    type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")]
    subject: tuple[Subject, ...]
    predicate_type: Annotated[Literal["https://lockstep.dev/attestation/node/v1"], Field(alias="predicateType")]
    predicate: Predicate


def of_node(
    verdict: NodeVerdict, facts: NodeFacts, *, slot: str, pool: str, fleet: str | None = None, lock: Lock | None = None
) -> Statement:
    """The statement about a node that answered. ``lock`` is the one it was compared with (`NodeVerdict.lock`)."""
    # Without a SKU a slot is a PCI address, which holds dots.
    found = ((re.fullmatch(r"gpu\.(.+)\.serial", key), value) for key, value in facts.attributes.items())
    serials = {match[1]: value for match, value in found if match is not None and value}
    who = Annotations(slot=slot, serial=facts.serial, gpus=serials)
    held = LockDigests(full=verdict.lock) if verdict.lock is not None else None
    if lock is not None and lock.full == verdict.lock:
        held = LockDigests(full=lock.full, job=lock.job, pinset=lock.pinset, os=lock.os)
    return Statement(
        type=STATEMENT_TYPE,
        subject=(Subject(name=slot, digest={"sha256": _identity(who)}, annotations=who),),
        predicate_type=PREDICATE_TYPE,
        predicate=Predicate(
            fleet=fleet,
            pool=pool,
            node=facts.node,
            verdict=verdict.verdict,
            lock=held,
            facts={"sha256": facts_digest(facts)},
            boot_id=facts.boot_id,
            observed_at=f"{datetime.datetime.fromtimestamp(facts.observed_at, datetime.UTC):%Y-%m-%dT%H:%M:%SZ}",
            findings=tuple(sorted({finding.id for finding in verdict.findings})),
        ),
    )


def _identity(who: Annotations) -> str:
    return canonical.digest(who.model_dump(mode="json"))


def facts_digest(facts: NodeFacts) -> str:
    """sha256 over every coordinate and what was seen there, as read and as compared; time and sources are left out."""
    rows: list[list[str]] = []
    for coordinate in sorted(facts.facts):
        seen = facts.facts[coordinate].observation
        if isinstance(seen, Version):
            rows.append([str(coordinate), "version", seen.value, seen.raw])
        elif isinstance(seen, Unreadable):
            rows.append([str(coordinate), "unreadable", seen.reason])
        else:
            rows.append([str(coordinate), "absent"])
    return canonical.digest(rows)


def payload(statement: Statement) -> bytes:
    """The bytes that are signed."""
    data: dict[str, Any] = statement.model_dump(mode="json", by_alias=True)
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def file_name(node: str) -> str:
    """The name of a node's file; what a host name may not hold never becomes part of a path.

    A name that is written otherwise ends in a digest of its own: it must not take another node's file.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", node).lstrip(".")
    if not plain or plain != node or len(node) > _LONGEST:
        plain = f"{plain[:_LONGEST]}-{hashlib.sha256(node.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
    return f"{plain}.intoto.json"


def problems(
    statement: Statement,
    *,
    now: float,
    max_age: float | None = None,
    facts: Mapping[str, NodeFacts] | None = None,
    lock: Lock | None = None,
) -> list[str]:
    """What in a statement whose signature is good does not hold together, or not with what it is checked against.

    ``max_age`` in seconds against ``now`` (Unix time); ``facts`` of a snapshot by node; ``lock`` that it must name.
    """
    found = [*_self(statement), *_time(statement.predicate.observed_at, now, max_age)]
    predicate = statement.predicate
    if lock is not None and (predicate.lock is None or predicate.lock.full != lock.full):
        held = predicate.lock.full[:16] if predicate.lock else "none"
        found.append(f"it names lock {held}, {lock.pinset}@{lock.os} is {lock.full[:16]}")
    if facts is not None:
        found += _against(predicate, facts.get(predicate.node))
    return found


def _self(statement: Statement) -> Iterator[str]:
    if len(statement.subject) != 1:
        yield f"it is about {len(statement.subject)} machines, not one"
    for subject in statement.subject:
        if subject.digest.get("sha256") != _identity(subject.annotations):
            yield f"the subject's digest is not that of {subject.annotations.slot} and its serials"


def _time(text: str, now: float, max_age: float | None) -> Iterator[str]:
    try:
        moment = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)
    except ValueError:
        yield f"{text!r} is no time"
        return
    age = now - moment.timestamp()
    if age < -FUTURE_SECONDS:
        yield f"it is from the future: {text}"
    if max_age is not None and age > max_age:
        yield f"it is {age:.0f} s old, allowed are {max_age:.0f}"


def _against(predicate: Predicate, seen: NodeFacts | None) -> Iterator[str]:
    if seen is None:
        yield f"the snapshot has no node {predicate.node}"
    elif facts_digest(seen) != predicate.facts.get("sha256"):
        yield "the snapshot's facts are not those that it is about"
    elif seen.boot_id != predicate.boot_id:
        yield f"the snapshot is of boot {seen.boot_id}, the statement of {predicate.boot_id}"


FUTURE_SECONDS: Final = 300.0
"""Clocks of two machines may differ that much before a statement counts as made up."""
