"""An Ansible inventory → the text of a fleet file: groups become pools, and what cannot be taken over is said."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from inventory import ansible
from lockstep.base import hostranges, issues, names

__all__ = ["FILL_IN", "Wishes", "fleet_text"]

FILL_IN: Final = "FILL-IN"
"""Stands where Ansible knows nothing; `lockstep check` names each of them."""

_TAKEN: Final = {
    "ansible_host": "address",
    "ansible_ssh_host": "address",
    "ansible_user": "user",
    "ansible_ssh_user": "user",
    "ansible_port": "port",
    "ansible_ssh_port": "port",
    "ansible_ssh_private_key_file": "identity",
    "ansible_private_key_file": "identity",
}
_ELSEWHERE: Final = {
    "ansible_ssh_common_args": "say it in ~/.ssh/config, which is honoured (ProxyJump, options)",
    "ansible_ssh_extra_args": "say it in ~/.ssh/config, which is honoured",
    "ansible_ssh_pass": "passwords are not taken over; use a key or an agent",
    "ansible_password": "passwords are not taken over; use a key or an agent",
    "ansible_become": "nodes are read and changed as the `ssh: user:` of the fleet file",
    "ansible_become_password": "passwords are not taken over",
    "ansible_python_interpreter": "not needed: nothing is required on a node",
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a person says and an inventory does not."""

    fleet: str = "imported"
    groups: tuple[str, ...] = ()
    """Groups that become pools; empty: every group that lists hosts itself."""
    sku: str = FILL_IN
    os: str = FILL_IN
    pinset: str = FILL_IN


@dataclass(frozen=True, slots=True)
class _Member:
    host: ansible.Host
    settings: dict[str, str]
    """address, user, port, identity, where given."""


def fleet_text(inventory: ansible.Inventory, path: str, wishes: Wishes, report: issues.Report) -> str | None:
    """YAML of a fleet file; None when ``report`` got errors. Warnings name what was left out, and why."""
    before = len(report.errors)
    if not names.is_dns_label(wishes.fleet):
        report.error("--fleet", None, f"`{wishes.fleet}` is no fleet name", "a DNS label")
    pools = _pools(inventory, path, wishes, report)
    members = [member for listed in pools.values() for member in listed]
    if not members and len(report.errors) == before:
        report.error(path, None, "no group lists a host", "name groups with --group")
    if len(report.errors) > before:
        return None
    lines = [f"fleet: {wishes.fleet}"]
    lines += _ssh(members, path, report)
    lines.append("pools:")
    for name, listed in pools.items():
        lines += [
            f"  - name: {name}",
            f"    sku: {wishes.sku}",
            f"    os: {wishes.os}",
            f"    pinset: {wishes.pinset}",
            "    nodes:",
            *(f"      {line}" for line in _nodes(listed)),
        ]
    if FILL_IN in (wishes.sku, wishes.os, wishes.pinset):
        report.warning(path, None, f"sku, os or pinset is {FILL_IN}: an inventory does not say them", "edit the file")
    return "\n".join(lines) + "\n"


def _pools(inventory: ansible.Inventory, path: str, wishes: Wishes, report: issues.Report) -> dict[str, list[_Member]]:
    chosen = list(wishes.groups) or [name for name, group in inventory.groups.items() if group.hosts and name != "all"]
    pools: dict[str, list[_Member]] = {}
    owner: dict[str, str] = {}
    lost: Counter[str] = Counter()
    for group in chosen:
        if group not in inventory.groups:
            known = ", ".join(inventory.groups)
            report.error(path, None, f"there is no group `{group}`", f"known here: {known}")
            continue
        pool = group.lower().replace("_", "-").replace(".", "-")
        line = inventory.groups[group].line
        if not names.is_dns_label(pool) or pool in pools:
            report.error(path, line, f"group `{group}` gives no pool name of its own (`{pool}`)", "rename the group")
            continue
        pools[pool] = []
        for name in _hosts_below(inventory, group):
            host = inventory.hosts[name]
            if name in owner:
                report.error(
                    path,
                    host.line,
                    f"host `{name}` is in the groups `{owner[name]}` and `{group}`, and a node stands in one pool",
                    "say which groups are pools: --group",
                )
                continue
            owner[name] = group
            if (settings := _settings(inventory, host, path, lost, report)) is not None:
                pools[pool].append(_Member(host, settings))
    left = sorted(set(inventory.hosts) - set(owner))
    if left and wishes.groups:
        report.warning(path, None, f"in no chosen group: {hostranges.fold(left)}")
    for word, count in sorted(lost.items()):
        hint = _ELSEWHERE.get(word, "a fleet file has no place for it")
        report.warning(path, None, f"`{word}` ({count} of {len(owner)} hosts) is not taken over", hint)
    return {name: listed for name, listed in pools.items() if listed}


def _hosts_below(inventory: ansible.Inventory, group: str) -> list[str]:
    """Hosts of a group and of its children, each once."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    queue = [group]
    while queue:
        name = queue.pop(0)
        if name in seen:
            continue
        seen.add(name)
        found.update(dict.fromkeys(inventory.groups[name].hosts))
        queue += inventory.groups[name].children
    return list(found)


def _settings(
    inventory: ansible.Inventory, host: ansible.Host, path: str, lost: Counter[str], report: issues.Report
) -> dict[str, str] | None:
    before = len(report.errors)
    settings: dict[str, str] = {}
    if not names.is_node_name(host.name):
        hint = "lower-case letters, digits, `-` and `.`; it also names the Kubernetes Node"
        report.error(path, host.line, f"`{host.name}` is no node name", hint)
    for word, value in inventory.effective(host).items():
        if value.startswith("$ANSIBLE_VAULT") or "{{" in value:
            kind = "encrypted" if value.startswith("$") else "a template"
            if word in _TAKEN:
                report.error(path, host.line, f"`{word}` of `{host.name}` is {kind}", "write the value out")
            else:
                lost[word] += 1
        elif word in _TAKEN:
            settings[_TAKEN[word]] = value
        elif word == "ansible_connection" and value not in ("ssh", "smart", "paramiko"):
            report.error(path, host.line, f"`{host.name}` is not reached by SSH (`ansible_connection={value}`)")
        elif word != "ansible_connection":
            lost[word] += 1
    port = settings.get("port")
    if port is not None and not (port.isdecimal() and 0 < int(port) < 65536):
        report.error(path, host.line, f"`{port}` is no port of `{host.name}`")
    return settings if len(report.errors) == before else None


def _ssh(members: Sequence[_Member], path: str, report: issues.Report) -> list[str]:
    """The ``ssh:`` line from what all hosts share; what differs per host belongs to ~/.ssh/config."""
    parts = []
    for word in ("user", "port", "identity"):
        values = Counter(member.settings.get(word) for member in members)
        value, count = values.most_common(1)[0]
        if len(values) > 1:
            odd = [member.host.name for member in members if member.settings.get(word) != value]
            report.warning(
                path,
                None,
                f"{word} differs between hosts; {value or 'none'} (on {count}) is written, not that of "
                f"{hostranges.fold(odd)}",
                "a fleet file has one for all; give the others in ~/.ssh/config, and leave it out of `ssh:`",
            )
        if value is not None:
            parts.append(f"identity: {{file: {_quoted(value)}}}" if word == "identity" else f"{word}: {_quoted(value)}")
    return [f"ssh: {{{', '.join(parts)}}}"] if parts else []


def _nodes(members: Iterable[_Member]) -> list[str]:
    """One entry per host with an address; hosts without one fold into ranges."""
    plain = [member.host.name for member in members if "address" not in member.settings]
    lines = [f"{_key(hostranges.fold(plain))}: {{}}"] if plain else []
    for member in members:
        if (address := member.settings.get("address")) is not None:
            lines.append(f"{_key(member.host.name)}: {{address: {_quoted(address)}}}")
    return lines


def _key(text: str) -> str:
    return _quoted(text) if "," in text else text


def _quoted(text: str) -> str:
    """As a YAML scalar: plain where nothing can be misread, else in JSON's double quotes."""
    plain = text.isdecimal() or (text.replace("-", "").replace("_", "").isalnum() and text[0].isalpha())
    return (
        text if plain and text.lower() not in ("null", "true", "false", "yes", "no", "on", "off") else json.dumps(text)
    )
