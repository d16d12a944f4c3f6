"""Which form of `nvidia-smi` output a driver's package carries: the elements, DTD and query fields of its branch.

``stand_ins/smi.form`` and the field list of ``stand_ins/smi.awk`` are of driver 580 and later. Lines of the form may
begin with ``[>=VERSION]``, ``[<VERSION]`` or both; a package gets those that hold for its driver, without the bracket.

Real samples exist of the XML of 535.54, 570.86, 570.148, 580.105, 580.173 and 595.91, and of the text forms of 590.48,
595.71, 595.80 and 610.57. Everything between is inferred: 550, 560 and 575 are given what the nearest older and newer
sample agree on, and where these differ the newer form from 550 on. Text forms before 590 and the XML of 610 are
inferred too (`INFERRED`). An inferred form proves nothing about a parser.
"""

from __future__ import annotations

import re

__all__ = ["INFERRED", "dtd", "fields", "form", "key"]

INFERRED = {"535": ("text",), "550": ("xml", "text"), "560": ("xml", "text"), "570": ("text",)}
INFERRED |= {"575": ("xml", "text"), "580": ("text",), "590": ("xml",), "595": (), "610": ("xml",)}
"""Branch → forms for which no real output was at hand."""

_CONDITION = re.compile(r"\[(>=|<)([0-9.]+)\]")
_FIELDS = {
    "c2c.mode": "550",
    "gpu_recovery_action": "560",
    "fabric.cliqueId": "550",
    "fabric.clusterUuid": "550",
    "fabric.health.bandwidth": "550",
    "fabric.health.summary": "580",
    "platform.": "560",
}
"""Query field, or its beginning → first branch that knows it: that of the same element in the XML."""


def key(version: str) -> tuple[int, ...]:
    """A driver version for comparing."""
    return tuple(int(part) for part in version.split("."))


def form(text: str, driver: str) -> str:
    """The lines of ``smi.form`` that hold for the driver; lines that begin with ``#!`` are for readers of ours."""
    kept = []
    for written in text.splitlines():
        line, holds = written, not written.startswith("#!")
        while (match := _CONDITION.match(line)) is not None:
            newer = key(driver) >= key(match[2])
            holds = holds and newer is (match[1] == ">=")
            line = line[match.end() :]
        if holds:
            kept.append(line)
    return "\n".join(kept) + "\n"


def dtd(driver: str) -> str:
    """Number of the DTD that the XML names."""
    return "13" if key(driver) >= (580,) else "12"


def fields(awk: str, driver: str) -> str:
    """``smi.awk`` with the query fields of the driver's branch alone."""
    for name, since in _FIELDS.items():
        if key(driver) < key(since):
            awk = re.sub(rf"(?<=[ \"]){re.escape(name)}\S*=\S+ ?", "", awk)
    return awk
