"""The words of one run: what is allowed, accepted and repeated by hand, from options or from the environment.

They live for one run. Under plain `pulumi` they are environment variables that
the plugin reads, never stack config, so that no consent stays behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inventory.model import Kind
from lockstep.base import errors
from lockstep.base.names import NodeName

__all__ = ["Words", "combined", "from_environment", "parse"]


@dataclass(frozen=True, slots=True)
class Words:
    """Default: nothing is allowed, nothing accepted."""

    allow: frozenset[Kind] = frozenset()
    """Kinds allowed on every node, beside the pool's policy."""
    allow_nodes: frozenset[tuple[Kind, NodeName]] = frozenset()
    """Kinds allowed on one node: ``reimage=gpu-004``."""
    accept: frozenset[str] = frozenset()
    """Ids of common-cause findings that are real and to be mended."""
    shrink: int | None = None
    """Number of nodes that a pool is meant to lose; None: none."""
    facts: str | None = None
    """``snapshot`` or a path instead of a live reading; None: live."""
    plan: str | None = None
    """Digest of an approved plan; None: none was given."""

    def allows(self, kind: Kind, node: NodeName) -> bool:
        """Whether this run allows ``kind`` on ``node`` by itself, whatever the pool's policy says."""
        return kind in self.allow or (kind, node) in self.allow_nodes


def parse(
    *,
    allow: Iterable[str] = (),
    accept: Iterable[str] = (),
    shrink: int | None = None,
    facts: str | None = None,
    plan: str | None = None,
) -> Words:
    """Words from options. Raises `errors.InputError` for a kind that is none."""
    everywhere: set[Kind] = set()
    by_node: set[tuple[Kind, NodeName]] = set()
    for text in allow:
        word, equals, node = text.partition("=")
        try:
            kind = Kind(word)
        except ValueError as error:
            raise errors.InputError(
                f"{word!r} is no kind of disruption", place="--allow", hint=f"one of {', '.join(Kind)}"
            ) from error
        if equals and not node:
            raise errors.InputError(f"{text!r} names no node", place="--allow", hint=f"write {word}=NODE")
        if node:
            by_node.add((kind, NodeName(node)))
        else:
            everywhere.add(kind)
    if shrink is not None and shrink < 1:
        raise errors.InputError(f"{shrink} is no number of nodes", place="--shrink")
    return Words(
        frozenset(everywhere),
        frozenset(by_node),
        frozenset(accept),
        shrink,
        None if facts in (None, "", "ssh") else facts,
        plan or None,
    )


def from_environment(environ: Mapping[str, str]) -> Words:
    """Words from LOCKSTEP_ALLOW, _ACCEPT (separated by commas or blanks), _SHRINK, _FACTS and _PLAN.

    Raises `errors.InputError`.
    """
    shrink = environ.get("LOCKSTEP_SHRINK") or None
    if shrink is not None and not shrink.isdecimal():
        raise errors.InputError(f"{shrink!r} is no number of nodes", place="LOCKSTEP_SHRINK")
    return parse(
        allow=_list(environ.get("LOCKSTEP_ALLOW", "")),
        accept=_list(environ.get("LOCKSTEP_ACCEPT", "")),
        shrink=int(shrink) if shrink is not None else None,
        facts=environ.get("LOCKSTEP_FACTS"),
        plan=environ.get("LOCKSTEP_PLAN"),
    )


def combined(
    environ: Mapping[str, str],
    *,
    allow: Iterable[str] | None = None,
    accept: Iterable[str] | None = None,
    shrink: int | None = None,
) -> Words:
    """Words of the environment and of options together; an option's number wins. Raises `errors.InputError`."""
    given, said = from_environment(environ), parse(allow=allow or (), accept=accept or (), shrink=shrink)
    return Words(
        given.allow | said.allow,
        given.allow_nodes | said.allow_nodes,
        given.accept | said.accept,
        said.shrink if said.shrink is not None else given.shrink,
        given.facts,
        given.plan,
    )


def _list(text: str) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text) if word]
