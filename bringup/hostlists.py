"""Which hosts are read without a fleet file: ranges, or an Ansible inventory with its addresses, users and ports.

A name that is no host name (a blank, a shell word, an option) is refused before anything is run with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bringup import targets
from bringup.transport.base import Target
from inventory import ansible
from inventory.model import Ssh
from lockstep.base import documents, errors, hostranges, issues
from lockstep.base.credentials import Reference
from lockstep.base.names import NodeName
from lockstep.base.plaintext import is_host_name, visible

__all__ = ["checked", "from_ansible", "from_ranges"]


def from_ranges(patterns: Sequence[str]) -> dict[NodeName, Target]:
    """``gpu-[001-512]`` and the like. Raises `errors.InputError` for what is no range of host names."""
    names = [name for pattern in patterns for name in hostranges.unfold(pattern, place="--hosts")]
    return targets.for_hosts(checked(names, "--hosts"))


def checked(names: Iterable[str], place: str) -> list[str]:
    """The names, each once. Raises `errors.InputError` naming every one that can be no host."""
    found = list(dict.fromkeys(names))
    wrong = [name for name in found if not is_host_name(name)]
    if wrong:
        shown = ", ".join(repr(visible(name[:60])) for name in wrong[:5])
        raise errors.InputError(
            f"{len(wrong)} {'is' if len(wrong) == 1 else 'are'} no host name: {shown}",
            place=place,
            hint="letters, digits, `-`, `_`, `.` and `:`; nothing that a shell or a program reads as something else",
        )
    return found


def from_ansible(path: Path, groups: Sequence[str] = ()) -> dict[NodeName, Target]:
    """Hosts of an inventory file (INI or YAML), of ``groups`` where given, reached as it says.

    Its programs are never run. Raises `errors.InputError` with everything wrong in it,
    `errors.NotMeasuredError` when it names no host.
    """
    report = issues.Report()
    place = documents.place(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise errors.InputError(f"cannot be read: {reason}", place=place) from error
    found = ansible.read(text, place, report)
    report.raise_if_errors("the inventory")
    assert found is not None  # noqa: S101 - without errors there is an inventory
    hosts = _of_groups(found, groups, place)
    checked(hosts, place)
    if not hosts:
        raise errors.NotMeasuredError("no host is in that selection", place=place)
    return targets.for_declared({name: _way(found.effective(host), path) for name, host in hosts.items()})


def _of_groups(found: ansible.Inventory, groups: Sequence[str], place: str) -> dict[str, ansible.Host]:
    unknown = [group for group in groups if group not in found.groups]
    if unknown:
        known = documents.did_you_mean(unknown[0], sorted(found.groups))
        raise errors.InputError(f"the inventory has no group {visible(unknown[0])!r}", place=place, hint=known)
    if not groups:
        return dict(found.hosts)
    wanted = set(groups)
    while more := {child for name in wanted for child in found.groups[name].children if child in found.groups} - wanted:
        wanted |= more
    return {name: host for name, host in found.hosts.items() if wanted.intersection(host.groups)}


def _way(variables: Mapping[str, str], path: Path) -> tuple[str | None, Ssh]:
    """(address, login) as Ansible's variables say; what they leave open comes from ~/.ssh/config."""
    address = variables.get("ansible_host") or variables.get("ansible_ssh_host")
    port = variables.get("ansible_port") or variables.get("ansible_ssh_port")
    if port is not None and not (port.isdecimal() and 0 < int(port) < 65536):
        raise errors.InputError(f"{visible(port)!r} is no port", place=documents.place(path))
    if address is not None:
        checked([address], documents.place(path))
    key = variables.get("ansible_ssh_private_key_file") or variables.get("ansible_private_key_file")
    return address, Ssh(
        user=variables.get("ansible_user") or variables.get("ansible_ssh_user"),
        port=int(port) if port is not None else None,
        identity=Reference(file=_near(path, key)) if key is not None else None,
    )


def _near(path: Path, key: str) -> Path:
    """Ansible takes a relative key file from the current folder; one beside the inventory is meant as well."""
    given = Path(key).expanduser()
    beside = path.parent / given
    return beside if not given.is_absolute() and not given.exists() and beside.exists() else given
