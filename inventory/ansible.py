"""An Ansible inventory (INI or YAML) → groups of hosts with their variables. Imports no Ansible and runs nothing.

What Ansible would compute (dynamic inventories, templates, vaults, ``group_vars``
folders) is not guessed: each is an issue that says so.
"""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.base import documents, issues, limits

__all__ = ["Group", "Host", "Inventory", "read", "unfold"]

_RANGE = re.compile(r"\[([0-9]+|[A-Za-z]):([0-9]+|[A-Za-z])(?::([0-9]+))?\]")
_SECTION = re.compile(r"\[([^\]:\s]+)(?::(\w+))?\]\s*(?:[#;].*)?")


@dataclass(slots=True)
class Host:
    """One host, with the variables that hold for it."""

    name: str
    line: int | None
    variables: dict[str, str] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    """Groups that list the host directly, in file order."""


@dataclass(slots=True)
class Group:
    """One group as written."""

    name: str
    line: int | None
    hosts: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Inventory:
    """What a file declares; variables of groups are merged into hosts by `effective`."""

    groups: dict[str, Group] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)

    def group(self, name: str, line: int | None) -> Group:
        """The group of that name, made when it is new."""
        return self.groups.setdefault(name, Group(name, line))

    def add_host(self, group: str, name: str, variables: Mapping[str, str], line: int | None) -> None:
        """List a host in a group; its own variables add up over its entries, the last one wins."""
        host = self.hosts.setdefault(name, Host(name, line))
        host.variables.update(variables)
        members = self.group(group, line)
        if name not in members.hosts:
            members.hosts.append(name)
            host.groups.append(group)

    def effective(self, host: Host) -> dict[str, str]:
        """A host's variables: those of all, of outer groups, of inner groups, its own; the nearest wins."""
        found: dict[str, str] = dict(self.groups["all"].variables) if "all" in self.groups else {}
        layers: dict[str, int] = {}
        for group in host.groups:
            self._climb(group, 0, layers)
        for name in sorted(layers, key=lambda name: (-layers[name], name)):
            if name != "all":
                found.update(self.groups[name].variables)
        found.update(host.variables)
        return found

    def _climb(self, name: str, depth: int, layers: dict[str, int]) -> None:
        """Note each ancestor with its distance from the host; a circle of children ends by itself."""
        if layers.get(name, -1) >= depth or depth > len(self.groups):
            return
        layers[name] = depth
        for parent in self.groups.values():
            if name in parent.children:
                self._climb(parent.name, depth + 1, layers)


def read(text: str, path: str, report: issues.Report) -> Inventory | None:
    """The inventory in ``text``; None when ``report`` got errors. YAML if the name says so, else INI."""
    before = len(report.errors)
    if text.startswith("#!"):
        report.error(
            path, 1, "this is a program, and inventories are not run", "ansible-inventory --list --yaml > FILE"
        )
        return None
    found = _from_yaml(text, path, report) if Path(path).suffix in (".yaml", ".yml") else _from_ini(text, path, report)
    return found if len(report.errors) == before else None


def _from_ini(text: str, path: str, report: issues.Report) -> Inventory:
    found = Inventory()
    group, sort = "ungrouped", "hosts"
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("[") and (section := _SECTION.fullmatch(line)):
            group, sort = section[1], section[2] or "hosts"
            if sort not in ("hosts", "vars", "children"):
                report.error(path, number, f"unknown section `{line}`", "[GROUP], [GROUP:vars] or [GROUP:children]")
            found.group(group, number)
        elif sort == "vars":
            name, equals, value = line.partition("=")
            if not equals:
                report.error(path, number, f"`{line}` is no variable", "NAME=VALUE")
            found.group(group, number).variables[name.strip()] = value.strip().strip("'\"")
        elif sort == "children":
            found.group(group, number).children.append(line.split()[0])
            found.group(line.split()[0], number)
        elif sort == "hosts":
            _ini_host(found, group, line, path, number, report)
    return found


def _ini_host(found: Inventory, group: str, line: str, path: str, number: int, report: issues.Report) -> None:
    try:
        pattern, *words = shlex.split(line, comments=True)
    except ValueError as error:
        report.error(path, number, f"cannot read `{line}`: {error}")
        return
    variables = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            report.error(path, number, f"`{word}` is no variable of a host", "NAME=VALUE")
            continue
        variables[name] = value
    for host in _hosts(pattern, path, number, report):
        found.add_host(group, host, variables, number)


def _from_yaml(text: str, path: str, report: issues.Report) -> Inventory:
    found = Inventory()
    document = documents.parse(text, path, report)
    if document is None:
        return found
    if not isinstance(document.data, dict):
        report.error(path, 1, "an inventory is a mapping of groups", "all: {children: {GROUP: {hosts: {NAME: }}}}")
        return found
    for name, body in document.data.items():
        _yaml_group(found, document, (name,), name, body, report)
    return found


def _yaml_group(
    found: Inventory,
    document: documents.Document,
    loc: tuple[str | int, ...],
    name: str,
    body: Any,
    report: issues.Report,
) -> None:
    group = found.group(name, document.line(*loc))
    if body is None:
        return
    if not isinstance(body, dict):
        report.error(document.path, document.line(*loc), f"group `{name}` is no mapping")
        return
    for key, value in body.items():
        line = document.line(*loc, key)
        if key not in ("hosts", "vars", "children"):
            hint = documents.did_you_mean(str(key), ["children", "hosts", "vars"])
            report.error(document.path, line, f"unknown key `{key}` of group `{name}`", hint)
        elif value is not None and not isinstance(value, dict):
            report.error(document.path, line, f"`{key}` of group `{name}` is no mapping")
        elif key == "vars":
            group.variables.update({word: _text(given) for word, given in (value or {}).items()})
        elif key == "children":
            for child, inside in (value or {}).items():
                group.children.append(child)
                _yaml_group(found, document, (*loc, key, child), child, inside, report)
        else:
            for pattern, variables in (value or {}).items():
                at = document.line(*loc, key, pattern)
                given = {word: _text(one) for word, one in (variables or {}).items()}
                for host in _hosts(pattern, document.path, at, report):
                    found.add_host(name, host, given, at)


def _text(value: Any) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _hosts(pattern: str, path: str, line: int | None, report: issues.Report) -> list[str]:
    try:
        return list(unfold(pattern))
    except ValueError as error:
        report.error(path, line, str(error))
        return []


def unfold(pattern: str) -> Iterator[str]:
    """Ansible's ranges: ``gpu-[01:10]``, ``[a:d]``, ``[01:10:3]``, both ends included. Raises ValueError.

    A port behind a colon (``host:2222``) is refused, since it would be lost.
    """
    match = _RANGE.search(pattern)
    if match is None:
        if "[" in pattern or "]" in pattern:
            raise ValueError(f"`{pattern}` is no host range of Ansible; write [01:10] or [a:d]")
        if re.fullmatch(r"[^:]+:\d+", pattern):
            raise ValueError(f"`{pattern}` names a port; write ansible_port=…")
        yield pattern
        return
    values = list(_values(match, pattern))
    if len(values) > limits.NODES_PER_PATTERN:
        raise ValueError(f"`{pattern}` names {len(values)} hosts, more than {limits.NODES_PER_PATTERN}")
    for value in values:
        for rest in unfold(pattern[match.end() :]) if pattern[match.end() :] else ("",):
            yield f"{pattern[: match.start()]}{value}{rest}"


def _values(match: re.Match[str], pattern: str) -> Iterator[str]:
    first, last, step = match[1], match[2], int(match[3] or 1)
    if step < 1 or first.isdecimal() != last.isdecimal():
        raise ValueError(f"`{pattern}`: the range [{match[0][1:-1]}] makes no sense")
    if first.isdecimal():
        if first.startswith("0") and len(first) > 1 and len(first) != len(last):
            raise ValueError(f"`{pattern}`: both ends of a padded range have the same number of digits")
        if int(last) - int(first) >= limits.NODES_PER_PATTERN * step:
            raise ValueError(f"`{pattern}` names more than {limits.NODES_PER_PATTERN} hosts")
        width = len(first) if first.startswith("0") else 0
        numbers = range(int(first), int(last) + 1, step)
        texts = [str(number).zfill(width) for number in numbers]
    else:
        letters = string.ascii_letters
        texts = list(letters[letters.index(first) : letters.index(last) + 1 : step])
    if not texts:
        raise ValueError(f"`{pattern}`: the range [{match[0][1:-1]}] runs backwards")
    yield from texts
