"""The transports by name, each imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.base import errors

if TYPE_CHECKING:
    from bringup.transport.base import Transport

__all__ = ["NAMES", "by_name"]

NAMES = ("paramiko", "openssh")


def by_name(name: str, *, accept_new: bool = False) -> Transport:
    """``paramiko``: our own tuned client. ``openssh``: the system's ssh, a process per host.

    ``accept_new`` takes the keys of hosts that have none and writes them to known_hosts. Raises `errors.InputError`.
    """
    if name == "paramiko":
        from bringup.transport import ssh

        return ssh.Ssh(accept_new=accept_new)
    if name == "openssh":
        from bringup.transport import openssh

        return openssh.OpenSsh(accept_new=accept_new)
    raise errors.InputError(f"there is no transport `{name}`", hint=f"one of {', '.join(NAMES)}")
