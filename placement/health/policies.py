"""The health policy file as values."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from lockstep.base import documents, issues
from lockstep.base.documents import Model

__all__ = ["Alarm", "Effect", "Meaning", "Policy", "load"]

FILE = Path(__file__).with_name("policy.yaml")


class Effect(enum.StrEnum):
    """What an event does to new placements."""

    DEVICE = "device"
    NODE = "node"
    LINK = "link"
    NOTICE = "notice"


class _Entry(Model):
    codes: tuple[int | str, ...]
    effect: Effect
    remedy: str
    reason: str


class Alarm(Model):
    """When one code on many nodes is the code's fault."""

    share: Annotated[float, Field(gt=0, le=1)]
    nodes: Annotated[int, Field(ge=1)]
    window_seconds: Annotated[float, Field(gt=0)]


class _File(Model):
    xids: tuple[_Entry, ...]
    recovery: dict[str, Effect]
    dcgm: tuple[_Entry, ...]
    alarm: Alarm


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one code means."""

    effect: Effect
    reason: str
    remedy: str
    unknown: bool = False
    """Whether neither the policy nor the GPU says what it means."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Codes → meanings."""

    codes: Mapping[str, Meaning]
    """``xid 79``, ``dcgm NVLINK_DOWN`` → meaning."""
    recovery: Mapping[str, Effect]
    alarm: Alarm

    def meaning(self, code: str, recovery: str | None) -> Meaning:
        """Of ``code``; an unknown Xid follows the GPU's recovery action, without one it is a notice.

        An unknown recovery action is taken for a reset: the GPU asks for something.
        """
        known = self.codes.get(code)
        if known is not None:
            return known
        if recovery is None:
            reason = "not in the policy, and the GPU names no recovery action"
            return Meaning(Effect.NOTICE, reason, "look at the node", unknown=True)
        effect = self.recovery.get(recovery, Effect.DEVICE)
        return Meaning(effect, f"not in the policy; the GPU's recovery action is {recovery}", recovery)


@functools.cache
def load(path: Path = FILE) -> Policy:
    """Read and check a policy file. Raises `errors.InputError` with every mistake."""
    report = issues.Report()
    document = documents.load(path, report, shown=path.name)
    file = document.model(_File, report) if document is not None else None
    codes: dict[str, Meaning] = {}
    for family, entries in (("xid", file.xids), ("dcgm", file.dcgm)) if file is not None else ():
        for entry in entries:
            for code in entry.codes:
                name = f"{family} {code}"
                if name in codes:
                    report.error(path.name, None, f"{name} is listed twice")
                codes[name] = Meaning(entry.effect, entry.reason, entry.remedy)
    report.raise_if_errors("health policy")
    assert file is not None  # noqa: S101 - the report had an error otherwise
    return Policy(codes, file.recovery, file.alarm)
