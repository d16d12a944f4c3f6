"""Plain data of a rule file → conditions and operands. A word outside the closed list is an error with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar

from lockstep.base import documents
from lockstep.base.names import ComponentName
from pinsets import components, normalisers
from pinsets.facts import Layer
from pinsets.rules import conditions, groups, logic, ordering
from pinsets.rules.logic import Form
from pinsets.rules.operands import EACH, Attribute, BuiltFor, Lookup, Operand, Packaged, Part, Place, Row
from pinsets.rules.worlds import Readable

__all__ = ["FormError", "Tables", "condition", "group", "lookup_rows", "no_return", "operand"]

Tables = Mapping[str, tuple[Row, ...]]
"""Name → rows, of the tables that operands look up."""


class FormError(Exception):
    """Something in a rule that has no meaning; ``loc`` is where, below the place that was parsed."""

    def __init__(self, message: str, loc: tuple[str | int, ...], hint: str | None = None) -> None:
        super().__init__(message)
        self.loc = loc
        self.hint = hint


Loc = tuple[str | int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _At:
    """Data with its place and the tables that are known."""

    data: object
    loc: Loc
    tables: Tables

    def error(self, message: str, hint: str | None = None) -> FormError:
        return FormError(message, self.loc, hint)

    def inside(self, key: str | int) -> _At:
        data = self.data
        if isinstance(data, Mapping) or (isinstance(data, list) and isinstance(key, int)):
            return _At(data[key], (*self.loc, key), self.tables)  # type: ignore[index]
        raise self.error("a mapping is needed")

    def mapping(self, needed: Sequence[str], optional: Sequence[str] = ()) -> Mapping[str, object]:
        if not isinstance(self.data, Mapping):
            raise self.error(f"a mapping with {', '.join(needed)} is needed")
        for key in self.data:
            if key not in (*needed, *optional):
                raise FormError(
                    f"unknown word `{key}`",
                    (*self.loc, str(key)),
                    documents.did_you_mean(str(key), [*needed, *optional]),
                )
        if missing := [key for key in needed if key not in self.data]:
            raise self.error(f"`{missing[0]}` is missing")
        return self.data

    def sequence(self) -> list[_At]:
        if not isinstance(self.data, list) or not self.data:
            raise self.error("a list with at least one entry is needed")
        return [self.inside(index) for index in range(len(self.data))]

    def text(self) -> str:
        if not isinstance(self.data, str) or not self.data.strip():
            raise self.error(f"a text is needed, got {self.data!r}; write it in quotes")
        return self.data.strip()

    def flag(self) -> bool:
        if not isinstance(self.data, bool):
            raise self.error("true or false is needed")
        return self.data

    def texts(self) -> tuple[str, ...]:
        return tuple(one.text() for one in self.sequence())


_PLACE = re.compile(r"(?P<component>[a-z0-9.-]+)(?P<each>\[each\])?@(?P<layers>[a-z]+(?:\|[a-z]+)*)")
_INSIDE = re.compile(r"<([^<>]+)>")


def operand(data: object, loc: Loc, tables: Tables) -> Operand:
    """An operand: text for a coordinate, a mapping for the others. Raises FormError."""
    return _operand(_At(data, loc, tables))


def _operand(at: _At) -> Operand:
    if isinstance(at.data, str):
        return _place(at, at.data)
    if not isinstance(at.data, Mapping):
        raise at.error("a coordinate, or a mapping such as `{attribute: gpu.product}`, is needed")
    if "attribute" in at.data:
        at.mapping(["attribute"])
        key = at.inside("attribute").text()
        inside = tuple((text, _place(at, text)) for text in _INSIDE.findall(key) if text != EACH)
        return Attribute(key, inside)
    if "number" in at.data:
        at.mapping(["number", "of"], ["to"])
        first, last = at.inside("number").data, at.inside("to").data if "to" in at.data else at.inside("number").data
        if not isinstance(first, int) or not isinstance(last, int) or not 1 <= first <= last:
            raise at.error("`number` and `to` count the numbers of a version from 1")
        return Part(_operand(at.inside("of")), first, last)
    if "built-for" in at.data:
        at.mapping(["built-for"])
        return BuiltFor(_operand(at.inside("built-for")))
    if "packaged" in at.data:
        at.mapping(["packaged"])
        return Packaged(_operand(at.inside("packaged")))
    if "lookup" in at.data:
        at.mapping(["lookup", "of"])
        name = at.inside("lookup").text()
        if name not in at.tables:
            raise at.error(f"there is no table `{name}`", documents.did_you_mean(name, sorted(at.tables)))
        return Lookup(name, _operand(at.inside("of")), at.tables[name])
    raise at.error("unknown operand", "known: a coordinate, attribute, number, built-for, packaged, lookup")


def _place(at: _At, text: str) -> Place:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise at.error(f"`{text}` is not component@layer", "or component@layer|layer, or component[each]@layer")
    name = ComponentName(match["component"])
    known = components.load()
    if name not in known:
        raise at.error(f"unknown component `{name}`", documents.did_you_mean(name, sorted(known)))
    may = (*known[name].layers, *known[name].further)
    layers = match["layers"].split("|")
    if wrong := [layer for layer in layers if layer not in [one.value for one in may]]:
        raise at.error(f"`{name}` has no layer `{wrong[0]}`", f"it has {', '.join(one.value for one in may)}")
    if (known[name].instance is not None) is not (match["each"] is not None):
        raise at.error(f"`{name}` is {'one per instance: write `[each]`' if not match['each'] else 'one per node'}")
    return Place(name, tuple(Layer(layer) for layer in layers), match["each"] is not None)


def _ranges(at: _At) -> tuple[ordering.Range, ...]:
    found = []
    for one in at.sequence() if isinstance(at.data, list) else [at]:
        try:
            found.append(ordering.parse_range(one.text()))
        except ValueError as error:
            raise one.error(str(error)) from error
    return tuple(found)


def lookup_rows(data: object, loc: Loc) -> tuple[Row, ...]:
    """The rows of a table to look up: ``{when: ranges, gives: text}``. Raises FormError."""
    rows = []
    for one in _At(data, loc, {}).sequence():
        given = one.mapping(["when", "gives"], ["doubtful"])
        doubtful = one.inside("doubtful").flag() if "doubtful" in given else False
        rows.append(Row(_ranges(one.inside("when")), one.inside("gives").text(), doubtful))
    return tuple(rows)


def condition(data: object, loc: Loc, tables: Tables) -> Form[Readable]:
    """A condition of a node or a set. Raises FormError."""
    return _condition(_At(data, loc, tables))


def _head(at: _At, known: Mapping[str, T]) -> tuple[T, _At]:
    if not isinstance(at.data, Mapping) or len(at.data) != 1:
        raise at.error("a condition is a mapping with one word", f"known: {', '.join(known)}")
    (word,) = at.data
    if word not in known:
        raise FormError(
            f"unknown condition `{word}`", (*at.loc, str(word)), documents.did_you_mean(str(word), list(known))
        )
    return known[word], at.inside(word)


def _condition(at: _At) -> Form[Readable]:
    make, inside = _head(at, _CONDITIONS)
    return make(inside)


def _within(at: _At, *, inside: bool = True, needed: bool = False) -> Form[Readable]:
    given = at.mapping(["of", "ranges"], ["except"])
    excluded = _ranges(at.inside("except")) if "except" in given else ()
    return conditions.Within(_operand(at.inside("of")), _ranges(at.inside("ranges")), excluded, inside, needed)


def _equal(at: _At) -> Form[Readable]:
    of = tuple(_operand(one) for one in at.sequence())
    if len(of) < 2:
        raise at.error("two operands are needed")
    return conditions.Equal(of)


def _one_of(at: _At) -> Form[Readable]:
    at.mapping(["of", "values"])
    return conditions.OneOf(_operand(at.inside("of")), at.inside("values").texts())


def _words(at: _At) -> Form[Readable]:
    at.mapping(["of", "any"])
    return conditions.Words(_operand(at.inside("of")), at.inside("any").texts())


def _order(at: _At) -> Form[Readable]:
    at.mapping(["of", "relation", "to"])
    relation = at.inside("relation").text()
    if relation not in (">=", "<=", ">", "<"):
        raise at.inside("relation").error(f"`{relation}` is no relation", ">=, <=, > or <")
    return conditions.Order(_operand(at.inside("of")), relation, _operand(at.inside("to")))


def _symbols(at: _At) -> Form[Readable]:
    at.mapping(["needed", "offered"])
    offered = tuple(_operand(one) for one in at.inside("offered").sequence())
    return conditions.Symbols(_operand(at.inside("needed")), offered)


_OTHERWISE: Final = MappingProxyType({"undecided": None, "holds": True, "breaks": False})


def _table(at: _At) -> Form[Readable]:
    given = at.mapping(["keys", "look", "lines"], ["otherwise"])
    keys = tuple(_operand(one) for one in at.inside("keys").sequence())
    lines = tuple(_line(one, keys) for one in at.inside("lines").sequence())
    otherwise = at.inside("otherwise").text() if "otherwise" in given else "undecided"
    if otherwise not in _OTHERWISE:
        raise at.inside("otherwise").error(f"`{otherwise}` is unknown", f"known: {', '.join(_OTHERWISE)}")
    return conditions.Table(keys, _operand(at.inside("look")), lines, _OTHERWISE[otherwise])


def _line(at: _At, keys: Sequence[Operand]) -> conditions.Line:
    given = at.mapping(["when", "then"], ["doubtful"])
    cells = at.inside("when").sequence()
    if len(cells) != len(keys):
        raise at.inside("when").error(f"{len(keys)} cells are needed, one per key")
    when = tuple(
        cell.text() if isinstance(key, Attribute) else _ranges(cell) for cell, key in zip(cells, keys, strict=True)
    )
    doubtful = at.inside("doubtful").flag() if "doubtful" in given else False
    return conditions.Line(when, _ranges(at.inside("then")), doubtful)


_CONDITIONS: Final[Mapping[str, Callable[[_At], Form[Readable]]]] = MappingProxyType(
    {
        "all": lambda at: logic.All(tuple(_condition(one) for one in at.sequence())),
        "any": lambda at: logic.Any(tuple(_condition(one) for one in at.sequence())),
        "not": lambda at: logic.Not(_condition(at)),
        "not-known": lambda at: logic.NotKnown(_condition(at)),
        "symbols": _symbols,
        "equal": _equal,
        "is": lambda at: _within(at, needed=True),
        "within": _within,
        "outside": lambda at: _within(at, inside=False),
        "one-of": _one_of,
        "words": _words,
        "present": lambda at: conditions.Present(_operand(at)),
        "absent": lambda at: conditions.Present(_operand(at), there=False),
        "single": lambda at: conditions.Single(_operand(at)),
        "order": _order,
        "table": _table,
    }
)


def group(data: object, loc: Loc, tables: Tables) -> Form[groups.Crowd]:
    """A condition of a group of nodes. Raises FormError."""
    return _group(_At(data, loc, tables))


def _group(at: _At) -> Form[groups.Crowd]:
    make, inside = _head(at, _GROUPS)
    return make(inside)


def _same(at: _At) -> Form[groups.Crowd]:
    given = at.mapping(["of"], ["absent"])
    absent = at.inside("absent").text() if "absent" in given else "differs"
    if absent not in ("differs", "ignored"):
        raise at.inside("absent").error(f"`{absent}` is unknown", "differs or ignored")
    return groups.Same(tuple(_operand(one) for one in at.inside("of").sequence()), absent == "differs")


def _recipes(at: _At) -> Form[groups.Crowd]:
    if not isinstance(at.data, Mapping) or not at.data:
        raise at.error("recipes by name are needed")
    return groups.Recipes(tuple(_recipe(at.inside(name), str(name)) for name in at.data))


def _recipe(at: _At, name: str) -> groups.Recipe:
    if not isinstance(at.data, Mapping) or not at.data:
        raise at.error("components with their versions are needed")
    known = components.load()
    values: dict[ComponentName, frozenset[str]] = {}
    for component in at.data:
        inside = at.inside(component)
        if component not in known:
            raise inside.error(
                f"unknown component `{component}`", documents.did_you_mean(str(component), sorted(known))
            )
        raws = inside.texts() if isinstance(inside.data, list) else (inside.text(),)
        values[ComponentName(component)] = frozenset(normalisers.normalise(component, raw) for raw in raws)
    return groups.Recipe(name, MappingProxyType(values))


_GROUPS: Final[Mapping[str, Callable[[_At], Form[groups.Crowd]]]] = MappingProxyType(
    {
        "all": lambda at: logic.All(tuple(_group(one) for one in at.sequence())),
        "any": lambda at: logic.Any(tuple(_group(one) for one in at.sequence())),
        "not": lambda at: logic.Not(_group(at)),
        "same": _same,
        "mixed": lambda at: groups.Mixed(_operand(at)),
        "every": lambda at: groups.Every(_condition(at)),
        "some": lambda at: groups.Some(_condition(at)),
        "recipes": _recipes,
    }
)


def no_return(data: object, loc: Loc) -> groups.NoReturn:
    """A step that cannot be taken: ``{of: component, from: ranges, to: ranges}``. Raises FormError."""
    at = _At(data, loc, {})
    at.mapping(["of", "from", "to"])
    name = ComponentName(at.inside("of").text())
    if name not in components.load():
        raise at.inside("of").error(f"unknown component `{name}`")
    return groups.NoReturn(name, _ranges(at.inside("from")), _ranges(at.inside("to")))
