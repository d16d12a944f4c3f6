"""The private folder of one Ansible run: inventory, ssh_config, known_hosts, secrets, environment.

0700, in memory where the machine has /dev/shm, removed at the end; what a killed
run left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bringup.transport.base import Identity, Jump, Target
from lockstep.base import errors, limits
from lockstep.base.journal import values
from lockstep.base.names import NodeName

__all__ = ["Host", "environment", "private_folder", "remove", "write"]

_PREFIX: Final = "lockstep-ansible-"


@dataclass(frozen=True, slots=True)
class Host:
    """One node of a run: how it is reached, as the sweep reaches it, and its own variables."""

    target: Target
    variables: Mapping[str, object] = field(default_factory=dict)

    @property
    def node(self) -> NodeName:
        """Its name, also Ansible's."""
        return self.target.node


@contextlib.contextmanager
def private_folder(state: Path) -> Iterator[Path]:
    """A folder that only this user reads, gone after the block."""
    base = Path("/dev/shm")  # noqa: S108 - memory, and the folder in it is made 0700 by mkdtemp
    if not (base.is_dir() and os.access(base, os.W_OK)):
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        base = state
    _remove_left_over(base)
    owner = values.Owner.this_process()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{owner.pid}-{owner.started}-", dir=base))
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove it; a second call, or one beside another, is no error."""
    shutil.rmtree(folder, ignore_errors=True)


def _remove_left_over(base: Path) -> None:
    here = values.Owner.this_process()
    for folder in base.glob(f"{_PREFIX}*"):
        pid, _, rest = folder.name.removeprefix(_PREFIX).partition("-")
        started = rest.partition("-")[0]
        if not pid.isdecimal() or folder.stat(follow_symlinks=False).st_uid != os.getuid():
            continue
        owner = values.Owner(here.host, here.machine, here.boot_id, here.namespace, int(pid), started)
        if owner.is_dead_here():
            remove(folder)


def write(folder: Path, hosts: Sequence[Host], variables: Mapping[str, object], secrets: Mapping[str, bytes]) -> None:
    """Fill the folder. Raises `errors.InputError` for a node that cannot be reached as configured."""
    files = folder / "files"
    files.mkdir(mode=0o700)
    for name, content in secrets.items():
        _private(files / name, content)
    keys = _Keys(files)
    inventory = {
        "all": {
            "hosts": {host.node: dict(host.variables) for host in hosts},
            "vars": {**variables, "private_files": str(files)},
        }
    }
    # Empty, but there: without it Ansible would look for the user's own and the machine's.
    _private(folder / "ansible.cfg", "[defaults]\n")
    _private(folder / "ssh_config", _ssh_config(folder, hosts, keys))
    _private(folder / "known_hosts", _known_hosts(hosts))
    _private(folder / "inventory.json", json.dumps(inventory, indent=1))


def environment(folder: Path, content: Path) -> dict[str, str]:
    """The child's whole environment: nothing of the user's Ansible settings gets in."""
    kept = {name: os.environ[name] for name in ("SSH_AUTH_SOCK", "USER", "TZ") if name in os.environ}
    path = os.pathsep.join(
        [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    )
    return {
        "HOME": str(folder),
        **kept,
        "PATH": path,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_ROLES_PATH": str(content / "roles"),
        "ANSIBLE_SSH_ARGS": f"-F {shlex.quote(str(folder / 'ssh_config'))}",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
        "ANSIBLE_TIMEOUT": str(int(limits.SSH_LOGIN_SECONDS)),
        "ANSIBLE_TASK_TIMEOUT": str(limits.ANSIBLE_TASK_SECONDS),
        "ANSIBLE_NO_TARGET_SYSLOG": "True",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_COW_SELECTION": "default",
        "ANSIBLE_NOCOWS": "True",
    }


def _private(path: Path, content: str | bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


class _Keys:
    """Private keys as files: those given as text are written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, Path] = {}

    def path(self, identity: Identity) -> str:
        if identity.path is not None:
            return identity.path
        text = identity.text or ""
        if text not in self._written:
            path = self._folder / f"identity-{len(self._written)}"
            _private(path, text if text.endswith("\n") else f"{text}\n")
            self._written[text] = path
        return str(self._written[text])


def _ssh_config(folder: Path, hosts: Sequence[Host], keys: _Keys) -> str:
    """One block per node and jump host; ssh hands the same file on to its own jumps."""
    lines: list[str] = []
    for host in hosts:
        target = host.target
        if target.refused is not None:
            raise errors.InputError(f"{target.node} cannot be reached: {target.refused}", place=target.node)
        jumps = [f"{target.node}-jump-{number}" for number, _ in enumerate(target.jumps)]
        for name, jump in zip(jumps, target.jumps, strict=True):
            lines += _block(name, jump, keys)
        lines += _block(target.node, target, keys)
        if jumps:
            lines.append(f"  ProxyJump {','.join(jumps)}")
    lines += [
        "Host *",
        f"  UserKnownHostsFile {_quoted(folder / 'known_hosts')}",
        "  GlobalKnownHostsFile /dev/null",
        "  StrictHostKeyChecking yes",
        "  UpdateHostKeys no",
        "  CheckHostIP no",
        "  BatchMode yes",
        "  ForwardAgent no",
        # One connection a task: a master would outlive the run, and is not needed for so few tasks.
        "  ControlMaster no",
        f"  ConnectTimeout {int(limits.SSH_CONNECT_SECONDS)}",
        "  ServerAliveInterval 10",
        "  ServerAliveCountMax 3",
        # OpenSSH 9.2 spends 100 ms a connection on its own first choice.
        "  KexAlgorithms ^curve25519-sha256",
    ]
    return "\n".join(lines) + "\n"


def _block(name: str, to: Target | Jump, keys: _Keys) -> list[str]:
    lines = [
        f"Host {name}",
        f"  HostName {to.address}",
        f"  Port {to.port}",
        f"  User {to.user}",
        f"  HostKeyAlias {name}",
    ]
    lines += [f"  IdentityFile {_quoted(keys.path(identity))}" for identity in to.identities]
    lines += [f"  CertificateFile {_quoted(path)}" for path in to.certificates]
    if not to.agent:
        lines += ["  IdentitiesOnly yes", "  IdentityAgent none"]
    return lines


def _quoted(path: str | Path) -> str:
    """For ssh_config(5): quoted for blanks; a percent sign would begin one of its tokens."""
    return '"{}"'.format(str(path).replace("%", "%%"))


def _known_hosts(hosts: Sequence[Host]) -> str:
    """Accepted keys under the aliases of `_ssh_config`: the same that the sweep accepts, and no others."""
    lines = []
    for host in hosts:
        lines += [f"{host.target.node} {key}" for key in host.target.host_keys]
        for number, jump in enumerate(host.target.jumps):
            lines += [f"{host.target.node}-jump-{number} {key}" for key in jump.host_keys]
    trusts = [host.target.trust for host in hosts] + [jump.trust for host in hosts for jump in host.target.jumps]
    lines += [f"@revoked * {key}" for key in sorted({key for trust in trusts for key in trust.revoked})]
    return "\n".join(lines) + "\n"
