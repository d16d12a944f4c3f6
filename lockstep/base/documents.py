"""YAML with positions → frozen pydantic models; every issue at once, with file and line.

YAML is read by `yamltrees`: no tags are evaluated, duplicate keys are errors.
Position of a value = line of its key (or its list item).
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import pydantic
from pydantic import BaseModel, ConfigDict

from lockstep.base import issues, yamltrees

__all__ = ["PLACEHOLDER", "Document", "Model", "did_you_mean", "load", "parse", "place"]

Loc = yamltrees.Loc

PLACEHOLDER: Final = "?"
"""Stands for a missing text in what `Document.partial` returns; no name may be this."""
_PRIVATE: Final = frozenset({"credentials", "identity", "password", "token", "secret"})
PARTIAL_ROUNDS: Final = 4
"""Leaving out a wrong entry can uncover a missing one, and that a wrong parent; deeper is hopeless."""


class Model(BaseModel):
    """Base of everything read from files: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


M = TypeVar("M", bound=BaseModel)


class Document:
    """A parsed file: plain data and the line of every key."""

    def __init__(self, path: str, data: Any, lines: dict[Loc, int]) -> None:
        self.path = path
        self.data = data
        self._lines = lines

    def line(self, *loc: str | int) -> int | None:
        """1-based line of the value at ``loc``, of its nearest known parent otherwise."""
        for end in range(len(loc), -1, -1):
            if (line := self._lines.get(loc[:end])) is not None:
                return line
        return None

    def model(self, kind: type[M], report: issues.Report) -> M | None:
        """The document as ``kind``; None when ``report`` got errors."""
        try:
            return kind.model_validate(self.data)
        except pydantic.ValidationError as error:
            for entry in error.errors(include_url=False):
                self._add(kind, entry["loc"], entry["type"], entry["msg"], entry.get("input"), report)
            return None

    def partial(self, kind: type[M], report: issues.Report) -> M | None:
        """As `model`, but what is sound is still returned, so that further checks can report at once.

        Wrong entries are left out and missing texts read `PLACEHOLDER`. ``report``
        has errors then; the value is for checks and nothing else. None when nothing
        sound remains.
        """
        if (whole := self.model(kind, report)) is not None:
            return whole
        data = copy.deepcopy(self.data)
        for _ in range(PARTIAL_ROUNDS):
            try:
                return kind.model_validate(data)
            except pydantic.ValidationError as error:
                for entry in error.errors(include_url=False):
                    _mend(data, entry["loc"], missing=entry["type"] == "missing")
        return None

    def _add(
        self, kind: type[BaseModel], loc: Loc, sort: str, message: str, value: object, report: issues.Report
    ) -> None:
        where = ".".join(str(part) for part in loc) or "the document"
        line = self.line(*loc)
        if sort == "extra_forbidden":
            report.error(
                self.path, line, f"unknown key `{where}`", did_you_mean(str(loc[-1]), _keys_at(kind, loc[:-1]))
            )
        elif sort == "missing":
            report.error(self.path, line, f"`{where}` is missing")
        else:
            text = message.removeprefix("Value error, ")
            # What stands in place of a reference to a secret may be the secret itself.
            private = not _PRIVATE.isdisjoint(loc)
            shown = f", got {value!r}" if isinstance(value, (str, int, float, bool)) and not private else ""
            hint = f'write it in quotes: "{value}"' if sort == "string_type" and shown else None
            if sort in ("model_type", "dict_type"):
                text = "a mapping of keys is needed"
            report.error(self.path, line, f"`{where}`: {text[0].lower()}{text[1:]}{shown}", hint)


def parse(text: str, path: str, report: issues.Report) -> Document | None:
    """YAML text → `Document`; None when the text cannot be read. Duplicate keys are errors in ``report`` beside it."""
    before = len(report.errors)
    read = yamltrees.read(text, path, report)
    if read is None or (len(report.errors) > before and not isinstance(read[0], dict)):
        return None
    return Document(path, *read)


def load(path: Path, report: issues.Report, *, shown: str | None = None) -> Document | None:
    """Read and `parse` a file; ``shown`` is the path for messages (None: as `place` gives it)."""
    name = shown or place(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        report.error(name, None, f"cannot be read: {reason}")
        return None
    return parse(text, name, report)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every pydantic model inside a type such as ``dict[str, Node] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _keys_at(kind: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    """The keys that may stand at ``loc`` in a document of ``kind``."""
    models: list[type[BaseModel]] = [kind]
    for part in loc:
        inside: list[type[BaseModel]] = []
        named = False
        for model in models:
            for name, spec in model.model_fields.items():
                if part in (name, spec.alias):
                    named = True
                    inside += _models_in(spec.annotation)
        # A list index or a free key of a dict names no field: the models stay.
        models = inside if named else models
    return sorted({spec.alias or name for model in models for name, spec in model.model_fields.items()})


def _mend(data: Any, loc: Sequence[str | int], *, missing: bool) -> None:
    """Take the entry at ``loc`` out of plain data, or put `PLACEHOLDER` where a text is missing."""
    *parents, last = loc or ("",)
    for part in parents:
        inside = isinstance(data, dict) and part in data
        if not inside and not (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            # pydantic names union members and validators in a location: the parent is the entry.
            break
        data = data[part]
    if isinstance(data, dict):
        if missing:
            data.setdefault(last, PLACEHOLDER)
        else:
            data.pop(last, None)
    elif isinstance(data, list) and isinstance(last, int) and last < len(data) and not missing:
        data[last] = PLACEHOLDER if isinstance(data[last], (int, float, str)) else {}


def place(path: Path) -> str:
    """A path for messages: relative to the current folder when it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def did_you_mean(word: str, known: Sequence[str]) -> str | None:
    """A hint for a mistyped ``word``: the closest known one, else all of them; None when there are none."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"known here: {', '.join(known)}" if known else None
