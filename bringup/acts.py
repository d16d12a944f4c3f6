"""From lock and fleet to what the Ansible roles get: variables and files. Pure, but for reading public key files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bringup import cluster_views
from bringup.cluster_views import NodeView
from inventory.model import Fleet
from lockstep.base import errors
from lockstep.base.names import ComponentName
from pinsets import components as components_module
from pinsets.model import Component, Lock

__all__ = ["driver_files", "driver_variables", "join_variables"]

KEYRINGS: Final = "/etc/apt/keyrings"

_DAEMONS: Final = ("fabricmanager", "imex")
"""Restarted when their package changed. The kubelet is the work of `join`."""


def driver_variables(fleet: Fleet, lock: Lock, components: Mapping[ComponentName, Component]) -> dict[str, object]:
    """Variables of the role `driver`, the same for every node of a pool."""
    names = [package.name for package in lock.packages]
    sources, keys = [], []
    for number, repository in enumerate(fleet.repositories, start=1):
        if repository.apt is None:
            # Of another pool's hosts: `consent.check_policy` refuses to install on those.
            continue
        signed = ""
        if repository.key is not None:
            path = f"{KEYRINGS}/{_stem(number)}{_suffix(repository.key)}"
            keys.append({"file": _stem(number), "path": path})
            signed = f"[signed-by={path}] "
        parts = " ".join(repository.components)
        sources.append(f"deb {signed}{repository.apt} {repository.suite} {parts}".rstrip())
    return {
        "sources": sources,
        "keys": keys,
        "packages": [f"{package.name}={package.version}" for package in lock.packages],
        "held": names,
        "exclusive": _exclusive(lock, components),
        "services": [name for daemon in _DAEMONS for name in _carriers(daemon, lock, components)],
    }


def driver_files(fleet: Fleet) -> dict[str, bytes]:
    """Public keys of the repositories, by the file names that `driver_variables` uses. Raises `errors.InputError`."""
    files = {}
    for number, repository in enumerate(fleet.repositories, start=1):
        if repository.key is not None:
            try:
                files[_stem(number)] = repository.key.read_bytes()
            except OSError as error:
                raise errors.InputError(
                    f"the key of repository {repository.address} cannot be read: {error.strerror}",
                    place=str(repository.key),
                ) from error
    return files


def join_variables(address: str, view: NodeView | None, lock: Lock) -> dict[str, object]:
    """Host variables of the role `join`: the kubelet is restarted only where it must be."""
    kubelet = lock.pin("kubelet")
    other_version = view is not None and kubelet is not None and not kubelet.accepts(view.kubelet.removeprefix("v"))
    return {
        "node_ip": address,
        "taint": cluster_views.UNVERIFIED,
        "restart_kubelet": view is None or not view.ready or other_version,
    }


def _stem(number: int) -> str:
    return "lockstep" if number == 1 else f"lockstep-{number}"


def _suffix(key: Path) -> str:
    """apt goes by the name: .asc is armoured text, .gpg is binary."""
    try:
        return ".asc" if key.read_bytes().lstrip().startswith(b"-----BEGIN") else ".gpg"
    except OSError:
        return ".asc"


def _exclusive(lock: Lock, components: Mapping[ComponentName, Component]) -> list[dict[str, str]]:
    """Families of packages named by their version, of which the newest installed one wins at boot: kernels."""
    found = []
    for pin in lock.pins:
        component = components.get(ComponentName(pin.component))
        if component is None or not components_module.named_by_version(component, lock.os):
            continue
        kept = _carriers(pin.component, lock, components)
        globs = components_module.patterns(component, lock.os)
        # A digit after the stem: meta packages (linux-image-amd64) are no kernels of their own.
        found += [
            {"glob": glob.replace("*", "[0-9]*", 1), "keep": keep} for glob, keep in zip(globs, kept, strict=False)
        ]
    return found


def _carriers(name: str, lock: Lock, components: Mapping[ComponentName, Component]) -> Sequence[str]:
    component, pin = components.get(ComponentName(name)), lock.pin(name)
    if component is None or pin is None:
        return ()
    there = {package.name for package in lock.packages}
    cuda = lock.pin("cuda")
    named = components_module.carriers(component, lock.os, pin.version, cuda.version if cuda else None)
    return [carrier for carrier in named if carrier in there]
