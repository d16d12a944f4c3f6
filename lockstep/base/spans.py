"""Where every value of a YAML text stands, to the character: for edits that leave all the rest of a file as it is.

`documents` reads for models; this reads for editing by hand, where writing the
whole tree anew would move other people's comments and quotes.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.base import errors

__all__ = ["Mapping", "Scalar", "Sequence", "Value", "parse"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A plain or quoted value."""

    start: int
    end: int
    """Offsets in the text; quotes are inside."""
    column: int
    value: str


@dataclass(frozen=True, slots=True)
class Mapping:
    """A block or flow mapping."""

    start: int
    end: int
    column: int
    flow: bool
    entries: tuple[tuple[Scalar, Value], ...]

    def get(self, name: str) -> Value | None:
        """The value under a key; None when it is not there."""
        return next((value for key, value in self.entries if key.value == name), None)


@dataclass(frozen=True, slots=True)
class Sequence:
    """A block or flow sequence."""

    start: int
    end: int
    column: int
    items: tuple[Value, ...]


Value = Scalar | Mapping | Sequence


def parse(text: str, place: str) -> Value:
    """The positions of a document. Raises `errors.InputError` when it is no YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        root = YAML(typ="rt", pure=True).compose(text)
    except (YAMLError, ValueError, RecursionError) as error:
        raise errors.InputError(f"not YAML: {str(error).splitlines()[0]}", place=place) from error
    if root is None:
        raise errors.InputError("the file is empty", place=place)
    return _value(root, text)


def _value(node: object, text: str) -> Value:
    from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

    if isinstance(node, ScalarNode):
        return _scalar(node)
    if isinstance(node, SequenceNode):
        items = tuple(_value(item, text) for item in node.value)
        return Sequence(node.start_mark.index, _end(node, text), node.start_mark.column, items)
    assert isinstance(node, MappingNode)  # noqa: S101 - YAML knows three kinds of node
    entries = tuple((_scalar(key), _value(value, text)) for key, value in node.value)
    return Mapping(node.start_mark.index, _end(node, text), node.start_mark.column, bool(node.flow_style), entries)


def _scalar(node: object) -> Scalar:
    from ruamel.yaml.nodes import ScalarNode

    assert isinstance(node, ScalarNode)  # noqa: S101 - our files have no mapping as a key
    return Scalar(node.start_mark.index, node.end_mark.index, node.start_mark.column, str(node.value))


def _end(node: object, text: str) -> int:
    """A block collection's end mark lies at the next token: go back over blanks and comments to its last value."""
    from ruamel.yaml.nodes import CollectionNode

    assert isinstance(node, CollectionNode)  # noqa: S101
    if node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    inner = last[1] if isinstance(last, tuple) else last
    return _end(inner, text) if isinstance(inner, CollectionNode) else int(inner.end_mark.index)
