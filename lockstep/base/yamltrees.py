"""YAML text → plain data and the line of every key, by libyaml: a fleet of 10,000 entries in a second, not twelve.

Scalars follow YAML 1.2, as people expect: ``on``, ``yes`` and ``12:30`` are texts, dates too.
No tag is evaluated. Duplicate keys are issues that do not hide what follows them.
ruamel.yaml stays for files that are written back with their comments.
"""

from __future__ import annotations

import re
from typing import Any, Final

from lockstep.base import issues

__all__ = ["Lines", "Loc", "read"]

Loc = tuple[str | int, ...]
Lines = dict[Loc, int]

VALUES: Final = 5_000_000
"""Anchors can make a small text unfold to any size; 100,000 nodes written one by one are a million values."""

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_STANDARD: Final = "tag:yaml.org,2002:"
_QUOTED: Final = frozenset("'\"|>")


def read(text: str, path: str, report: issues.Report) -> tuple[Any, Lines] | None:
    """(plain data, line of each location); None when the text is no YAML or empty, which ``report`` then says."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        tree = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        report.error(path, mark.line + 1 if mark else None, f"not YAML: {error.problem or error.context}")
        return None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        report.error(path, None, f"not YAML: {first}")
        return None
    if tree is None:
        report.error(path, 1, "the file is empty")
        return None
    reader = _Reader(path, report)
    try:
        return reader.value(tree, ()), reader.lines
    except (_TooLargeError, RecursionError):
        report.error(path, None, f"the file unfolds to more than {VALUES} values, or to itself", "see its anchors")
        return None


class _TooLargeError(Exception):
    """More values than `VALUES`."""


class _Reader:
    """Walks composed nodes. An anchor's node is read once per use, at its own lines."""

    def __init__(self, path: str, report: issues.Report) -> None:
        self.lines: Lines = {}
        self._path = path
        self._report = report
        self._count = 0

    def value(self, node: Any, loc: Loc) -> Any:
        self._count += 1
        if self._count > VALUES:
            raise _TooLargeError
        self.lines.setdefault(loc, node.start_mark.line + 1)
        if node.id == "scalar":
            return _scalar(node)
        if node.id == "sequence":
            return [self._entry(item, (*loc, index), item) for index, item in enumerate(node.value)]
        return self._mapping(node, loc)

    def _entry(self, node: Any, loc: Loc, place: Any) -> Any:
        self.lines[loc] = place.start_mark.line + 1
        return self.value(node, loc)

    def _mapping(self, node: Any, loc: Loc) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[Any] = []
        for key, value in node.value:
            if key.id != "scalar":
                self._report.error(self._path, key.start_mark.line + 1, "a key is a text, not a mapping or a list")
                continue
            if key.value == "<<" and key.style not in _QUOTED:
                merged += value.value if value.id == "sequence" else [value]
                continue
            name = str(key.value)
            if name in found:
                first = self.lines[*loc, name]
                self._report.error(
                    self._path, key.start_mark.line + 1, f"`{name}` stands here twice, first in line {first}"
                )
                continue
            found[name] = self._entry(value, (*loc, name), key)
        for other in merged:
            inherited = self._mapping(other, ("<<", *loc)) if other.id == "mapping" else {}
            for name, value in inherited.items():
                if name not in found:
                    found[name] = value
                    self.lines[*loc, name] = self.lines["<<", *loc, name]
        return found


def _scalar(node: Any) -> Any:
    text = node.value
    if node.style in _QUOTED or not node.tag.startswith(_STANDARD) or node.tag == f"{_STANDARD}str":
        return text
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text)
    if _HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(re.sub(r"\.(inf|nan)", r"\1", text.lower()))
    return text
