"""Which packages of an RPM repository an exact set needs: requires, provides, files and boolean expressions. Pure.

A requirement that no package of the index offers under that name belongs to the OS
image and is listed as external. Module streams are not looked at: see
`rpm_repositories.Read.modular`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pinsets import rpmversions
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
        for package in packages:
            if package.architecture not in (architecture, "noarch"):
                continue
            same = next((one for one in self.by_name[package.name] if one.version == package.version), None)
            if same is not None and same.sha256 != package.sha256:
                raise ValueError(
                    f"{package.name} {package.version} stands there with two checksums: {same.filename} and "
                    f"{package.filename}"
                )
            if same is not None:
                continue
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
    (families are released together), then the newest. Passes repeat until nothing is
    added, since a condition (``a if b``) can become true late.
    """
    found: Resolution[Package] = Resolution(packages=dict(given))
    trees: dict[Entry, _Node] = {}
    before = -1
    while len(found.packages) != before:
        before = len(found.packages)
        found.external, found.problems = set(), []
        for name in sorted(found.packages):
            package = found.packages[name]
            for entry in package.requires:
                _require(index, found, package, entry, trees)
    found.problems += _clashes(found.packages)
    return found


def _require(
    index: Index, found: Resolution[Package], package: Package, entry: Entry, trees: dict[Entry, _Node]
) -> None:
    if entry not in trees:
        try:
            trees[entry] = parse_rich(entry.name) if entry.rich else _Leaf((entry,))
        except RichError as error:
            found.problems.append(f"{package.name} {package.version} needs {entry}: {error}")
            return
    _satisfy(index, found, package, trees[entry])


def _satisfy(index: Index, found: Resolution[Package], package: Package, node: _Node) -> None:
    match node:
        case _All(parts):
            for part in parts:
                _satisfy(index, found, package, part)
        case _If(then, condition, otherwise):
            if _holds(found.packages, condition):
                _satisfy(index, found, package, then)
            elif otherwise is not None:
                _satisfy(index, found, package, otherwise)
        case _Any(parts):
            if any(_holds(found.packages, part) for part in parts):
                return
            able = [part for part in parts if not isinstance(part, _Leaf) or _candidates(index, found, part)]
            if able:
                _satisfy(index, found, package, able[0])
            elif not any(index.offered.get(entry.name) for part in parts for entry in _entries(part)):
                found.external.add(str(node))
            else:
                _satisfy(index, found, package, parts[0])
        case _Leaf():
            _take(index, found, package, node)


def _entries(node: _Node) -> tuple[Entry, ...]:
    return node.entries if isinstance(node, _Leaf) else ()


def _holds(packages: Mapping[str, Package], node: _Node) -> bool:
    match node:
        case _All(parts):
            return all(_holds(packages, part) for part in parts)
        case _Any(parts):
            return any(_holds(packages, part) for part in parts)
        case _If(then, condition, otherwise):
            if _holds(packages, condition):
                return _holds(packages, then)
            return otherwise is None or _holds(packages, otherwise)
        case _Leaf(entries):
            return any(_offers(package, entries) for package in packages.values())


def _offers(package: Package, entries: tuple[Entry, ...]) -> bool:
    return all(
        entry.name in package.files or any(entry.overlaps(provided) for provided in package.provides)
        for entry in entries
    )


def _candidates(index: Index, found: Resolution[Package], leaf: _Leaf) -> list[Package]:
    """Packages that would satisfy it and whose name is not taken by another version."""
    offering = (package for package, _ in index.offered.get(leaf.entries[0].name, ()))
    return [one for one in offering if _offers(one, leaf.entries) and one.name not in found.packages]


def _take(index: Index, found: Resolution[Package], package: Package, leaf: _Leaf) -> None:
    if _holds(found.packages, leaf):
        return
    candidates = _candidates(index, found, leaf)
    if candidates:
        wanted = leaf.entries[0].name
        best = sorted(candidates, key=lambda one: (one.name != wanted, len(one.name), one.name))[0].name
        same = [one for one in candidates if one.name == best]
        equal = [one for one in same if one.version == package.version]
        chosen = max(equal or same, key=lambda one: rpmversions.sort_key(one.version))
        found.packages[chosen.name] = chosen
        return
    offered = [one for one, _ in index.offered.get(leaf.entries[0].name, ())]
    if not offered:
        found.external.add(str(leaf))
        return
    taken = next((found.packages[one.name] for one in offered if one.name in found.packages), None)
    why = f"{taken.name} {taken.version} is pinned or needed by another" if taken else "no such version is there"
    found.problems.append(f"{package.name} {package.version} needs {leaf}: {why}")


def _clashes(packages: Mapping[str, Package]) -> Iterator[str]:
    """Chosen packages that cannot be installed beside each other; a conflict with itself is a guard against doubles."""
    for name in sorted(packages):
        package = packages[name]
        for word, entries in (("conflicts with", package.conflicts), ("replaces", package.obsoletes)):
            for entry in entries:
                for other in packages.values():
                    # What is replaced is a package by its name; what is in conflict may be a capability.
                    provided = other.provides if word == "conflicts with" else (Entry(other.name, "=", other.version),)
                    if other.name != name and not entry.rich and any(entry.overlaps(one) for one in provided):
                        yield f"{package.name} {package.version} {word} {other.name} {other.version}"


_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


def architecture(os_name: str) -> str:
    """``rocky-9-amd64`` and ``rocky-9-x86_64`` → ``x86_64``."""
    last = os_name.rpartition("-")[2]
    return _ARCHITECTURES.get(last, last)
