"""Which packages of an RPM repository an exact set needs: requires, provides, files and boolean expressions. Pure.

A requirement that no package of the index offers under that name belongs to the OS
image and is listed as external. Module streams are not looked at: see
`rpm_repositories.Read.modular`.
"""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pinsets import newcomers, rpmversions
from pinsets.apt import Resolution
from pinsets.rpm import Entry, Package

__all__ = ["Index", "RichError", "architecture", "parse_rich", "resolve"]


class RichError(ValueError):
    """A boolean expression that cannot be read, or whose operator is not handled."""


@dataclass(slots=True)
class Index:
    """Packages of one or more repositories, for one architecture."""

    by_name: dict[str, list[Package]] = field(default_factory=lambda: defaultdict(list))
    offered: dict[str, list[tuple[Package, Entry]]] = field(default_factory=lambda: defaultdict(list))
    """Capability or path → packages that offer it, with the entry."""

    def add(self, packages: Iterable[Package], architecture: str) -> None:
        """Take in packages of ``architecture`` and ``noarch``. Raises ValueError when two claim one version."""
        for package in newcomers.of(packages, self.by_name, (architecture, "noarch")):
            self.by_name[package.name].append(package)
            for entry in (*package.provides, *(Entry(path) for path in package.files)):
                self.offered[entry.name].append((package, entry))

    def versions(self, name: str) -> list[Package]:
        """Packages of that name, newest first."""
        found = self.by_name.get(name, [])
        return sorted(found, key=lambda package: rpmversions.sort_key(package.version), reverse=True)

    def resolve(self, given: Mapping[str, Package]) -> Resolution[Package]:
        """The closure of ``given``: see `resolve`."""
        return resolve(self, given)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """Entries that one package must satisfy together (``a >= 1 with a < 2``); mostly one."""

    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        return " with ".join(map(str, self.entries))


@dataclass(frozen=True, slots=True)
class _All:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Any:
    parts: tuple[_Node, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class _If:
    then: _Node
    condition: _Node
    otherwise: _Node | None


_Node = _Leaf | _All | _Any | _If

_RELATIONS: Final = frozenset({"=", "<", "<=", ">", ">="})


def parse_rich(text: str) -> _Node:
    """``(a >= 1 if (b or c))`` as a tree. Raises `RichError` for what it cannot mean, ``without`` and ``unless``."""
    tokens = _tokens(text)
    if not tokens or tokens[0] != "(":
        raise RichError(f"{text!r} is no boolean expression")
    node, rest = _group(tokens[1:], text)
    if rest:
        raise RichError(f"{text!r} goes on behind its end")
    return node


def _tokens(text: str) -> list[str]:
    """Words and the parentheses of the expression; those inside a capability (``libx.so.1()(64bit)``) stay in it."""
    found: list[str] = []
    word, depth = "", 0
    for character in text:
        if character == "(" and word:
            depth += 1
        elif character == ")" and depth:
            depth -= 1
        elif character in "()" or character.isspace():
            if word:
                found.append(word)
                word = ""
            if not character.isspace():
                found.append(character)
            continue
        word += character
    return [*found, word] if word else found


def _group(tokens: list[str], text: str) -> tuple[_Node, list[str]]:
    """What stands between two parentheses, the opening one taken off; and what is left behind the closing one."""
    parts: list[_Node] = []
    operators: list[str] = []
    while True:
        node, tokens = _operand(tokens, text)
        parts.append(node)
        if not tokens:
            raise RichError(f"{text!r} has no end")
        if tokens[0] == ")":
            return _joined(parts, operators, text), tokens[1:]
        operators.append(tokens[0])
        tokens = tokens[1:]


def _operand(tokens: list[str], text: str) -> tuple[_Node, list[str]]:
    if not tokens or tokens[0] == ")":
        raise RichError(f"{text!r} lacks an operand")
    if tokens[0] == "(":
        return _group(tokens[1:], text)
    if len(tokens) > 2 and tokens[1] in _RELATIONS:
        return _Leaf((Entry(tokens[0], tokens[1], tokens[2]),)), tokens[3:]
    return _Leaf((Entry(tokens[0]),)), tokens[1:]


def _joined(parts: list[_Node], operators: list[str], text: str) -> _Node:
    kinds = set(operators)
    if not kinds:
        return parts[0]
    if kinds == {"and"}:
        return _All(tuple(parts))
    if kinds == {"or"}:
        return _Any(tuple(parts))
    if kinds == {"with"} and all(isinstance(part, _Leaf) for part in parts):
        return _Leaf(tuple(entry for part in parts if isinstance(part, _Leaf) for entry in part.entries))
    if operators in (["if"], ["if", "else"]):
        return _If(parts[0], parts[1], parts[2] if len(parts) > 2 else None)
    raise RichError(f"`{' … '.join(operators)}` in {text!r} is not handled")


def resolve(index: Index, given: Mapping[str, Package]) -> Resolution[Package]:
    """The closure of ``given`` (name → exact package) over ``index`` alone; the same answer for the same index.

    Where several packages would do: the one of that name, then one of an equal version
    (families are released together), then the newest. Expressions with conditions are
    looked at again until nothing is added, since ``a if b`` can become true late; what
    does not hold in the end is external or a problem.
    """
    chosen = _Chosen(index)
    for name in sorted(given):
        chosen.take(given[name])
    requirements: list[tuple[Package, Entry, _Node | RichError]] = []
    conditional: list[tuple[Package, _Node]] = []
    while chosen.pending:
        while chosen.pending:
            package = chosen.pending.popleft()
            for entry in package.requires:
                node = _tree(entry)
                requirements.append((package, entry, node))
                if not isinstance(node, RichError):
                    chosen.want(package, node)
                    if not isinstance(node, _Leaf):
                        conditional.append((package, node))
        for package, node in conditional:
            chosen.want(package, node)
    found: Resolution[Package] = Resolution(packages=chosen.packages)
    for package, entry, node in requirements:
        if isinstance(node, RichError):
            found.problems.append(f"{package.name} {package.version} needs {entry}: {node}")
            continue
        for external, problem in chosen.lacks(package, node):
            (found.external.add if problem is None else found.problems.append)(problem or external)
    found.problems.sort()
    found.problems += chosen.clashes()
    return found


@functools.lru_cache(maxsize=65_536)
def _tree(entry: Entry) -> _Node | RichError:
    if not entry.rich:
        return _Leaf((entry,))
    try:
        return parse_rich(entry.name)
    except RichError as error:
        return error


class _Chosen:
    """Packages that are in already, with what they offer by name."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.packages: dict[str, Package] = {}
        self.offered: dict[str, list[tuple[Package, Entry]]] = defaultdict(list)
        self.pending: deque[Package] = deque()
        """Those whose requirements were not looked at yet."""

    def take(self, package: Package) -> None:
        """Take one in."""
        self.packages[package.name] = package
        self.pending.append(package)
        for entry in (*package.provides, *(Entry(path) for path in package.files)):
            self.offered[entry.name].append((package, entry))

    def holds(self, node: _Node) -> bool:
        """Whether what is chosen satisfies it."""
        match node:
            case _All(parts):
                return all(self.holds(part) for part in parts)
            case _Any(parts):
                return any(self.holds(part) for part in parts)
            case _If(then, condition, otherwise):
                if self.holds(condition):
                    return self.holds(then)
                return otherwise is None or self.holds(otherwise)
            case _Leaf(entries):
                return any(_offers(package, entries) for package in self._named(entries[0]))

    def _named(self, entry: Entry) -> Iterator[Package]:
        """Chosen packages that offer the entry itself."""
        return (package for package, one in self.offered.get(entry.name, ()) if entry.overlaps(one))

    def want(self, package: Package, node: _Node) -> None:
        """Take in what makes it hold, as far as there is something."""
        match node:
            case _All(parts):
                for part in parts:
                    self.want(package, part)
            case _If(then, condition, otherwise):
                if self.holds(condition):
                    self.want(package, then)
                elif otherwise is not None:
                    self.want(package, otherwise)
            case _Any(parts):
                if not self.holds(node):
                    able = [part for part in parts if not isinstance(part, _Leaf) or self._candidates(part)]
                    if able:
                        self.want(package, able[0])
            case _Leaf(entries):
                if not self.holds(node) and (candidates := self._candidates(node)):
                    self.take(_best(candidates, entries[0].name, package.version))

    def _candidates(self, leaf: _Leaf) -> list[Package]:
        """Packages that would satisfy it and whose name is not taken by another version."""
        offering = (package for package, _ in self.index.offered.get(leaf.entries[0].name, ()))
        return [one for one in offering if one.name not in self.packages and _offers(one, leaf.entries)]

    def lacks(self, package: Package, node: _Node) -> Iterator[tuple[str, str | None]]:
        """(text, problem) of each part that does not hold; no problem where nothing of the index offers it."""
        match node:
            case _All(parts):
                for part in parts:
                    yield from self.lacks(package, part)
            case _If(then, condition, otherwise):
                if self.holds(condition):
                    yield from self.lacks(package, then)
                elif otherwise is not None:
                    yield from self.lacks(package, otherwise)
            case _Any(parts):
                if not self.holds(node):
                    known = [part for part in parts if not isinstance(part, _Leaf) or self._known(part)]
                    if known:
                        yield from self.lacks(package, known[0])
                    else:
                        yield str(node), None
            case _Leaf():
                if not self.holds(node):
                    yield str(node), self._why(package, node) if self._known(node) else None

    def _known(self, leaf: _Leaf) -> bool:
        return bool(self.index.offered.get(leaf.entries[0].name))

    def _why(self, package: Package, leaf: _Leaf) -> str:
        offering = (one for one, _ in self.index.offered[leaf.entries[0].name])
        taken = next((self.packages[one.name] for one in offering if one.name in self.packages), None)
        why = f"{taken.name} {taken.version} is pinned or needed by another" if taken else "no such version is there"
        return f"{package.name} {package.version} needs {leaf}: {why}"

    def clashes(self) -> Iterator[str]:
        """Pairs that cannot be installed beside each other; a conflict with itself is a guard against doubles."""
        for name in sorted(self.packages):
            package = self.packages[name]
            for entry in package.conflicts:
                for other in dict.fromkeys(one.name for one in self._named(entry)):
                    if other != name:
                        yield _clash(package, "conflicts with", self.packages[other])
            for entry in package.obsoletes:
                # What is replaced is a package by its name; what is in conflict may be a capability.
                old = self.packages.get(entry.name)
                if old is not None and old is not package and entry.overlaps(Entry(old.name, "=", old.version)):
                    yield _clash(package, "replaces", old)


def _clash(package: Package, word: str, other: Package) -> str:
    return f"{package.name} {package.version} {word} {other.name} {other.version}"


def _best(candidates: list[Package], wanted: str, version: str) -> Package:
    name = min(candidates, key=lambda one: (one.name != wanted, len(one.name), one.name)).name
    same = [one for one in candidates if one.name == name]
    equal = [one for one in same if one.version == version]
    return max(equal or same, key=lambda one: rpmversions.sort_key(one.version))


def _offers(package: Package, entries: tuple[Entry, ...]) -> bool:
    return all(
        entry.name in package.files or any(entry.overlaps(provided) for provided in package.provides)
        for entry in entries
    )


_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


def architecture(os_name: str) -> str:
    """``rocky-9-amd64`` and ``rocky-9-x86_64`` → ``x86_64``."""
    last = os_name.rpartition("-")[2]
    return _ARCHITECTURES.get(last, last)
