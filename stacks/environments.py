"""What a stack declares, resolved: its fleet, the inputs of its pools, its cluster.

Pure but for reading files and one connection to see that the cluster answers, so that the
program stays short and this can be tested without an engine.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from inventory import load, model
from lockstep.base import documents, errors, issues
from lockstep.base import settings as places
from pinsets import load as locks
from stacks import pools, settings

__all__ = ["Declared", "declared", "fleet_of", "need_cluster", "resolve"]

CONNECT_SECONDS = 5.0
"""Until a TCP connect to the API server counts as failed; on loopback it is refused at once."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The environment of one stack."""

    fleet: model.Fleet
    pools: Mapping[str, Mapping[str, object]]
    """Pool name → inputs of its resource."""
    kubeconfig: Path | None
    """None: an environment without a cluster, only pools."""
    cluster: str
    """The stable identifier of the cluster."""

    def components(self) -> dict[str, list[dict[str, Any]]]:
        """The cluster's shared objects, component → objects, in the order to apply them."""
        from manifests import render

        return render.components(self.fleet)


def declared(stack: str, config: Mapping[str, str], environ: Mapping[str, str] | None = None) -> Declared:
    """Everything the program needs. Raises `errors.LockstepError` with all that is wrong; touches nothing."""
    environment = os.environ if environ is None else environ
    where = places.load(environment)
    wanted = settings.read(stack, config, environment)
    if wanted.lab and not environment.get("LOCKSTEP_STATE"):
        raise errors.InputError(
            f"stack {stack} is a lab, and its environment is not loaded", hint=f'eval "$(lockstep env {stack})"'
        )
    fleet = load.fleet(fleet_of(wanted, where), where)
    known = locks.fleet_locks(fleet)
    kubeconfig = resolve(wanted.kubeconfig, where) if wanted.kubeconfig is not None else None
    if kubeconfig is not None:
        need_cluster(kubeconfig, f"lockstep lab up {stack}" if wanted.lab else None)
    found = {
        str(pool.name): pools.inputs(fleet, pool, known[pool.name], where.checkout, kubeconfig) for pool in fleet.pools
    }
    return Declared(fleet, found, kubeconfig, wanted.cluster or str(fleet.name))


def fleet_of(wanted: settings.StackSettings, where: places.Settings) -> str:
    """The fleet as `inventory.load` takes it: a name, or a path made absolute.

    The engine runs the program in its own folder, so a relative path can only mean the checkout's root.
    """
    if "/" not in wanted.fleet and not wanted.fleet.endswith((".yaml", ".yml")):
        return wanted.fleet
    return str(resolve(Path(wanted.fleet), where))


def resolve(path: Path, where: places.Settings) -> Path:
    """``path`` with ``~`` expanded, relative ones against the checkout's root."""
    expanded = path.expanduser()
    return expanded if expanded.is_absolute() else (where.checkout or Path.cwd()) / expanded


def need_cluster(kubeconfig: Path, remedy: str | None) -> None:
    """Raise `errors.NotMeasuredError` at once when the API server does not answer.

    Otherwise the engine would warn, go on, and fail minutes later with many messages.
    """
    server = _server(kubeconfig, remedy)
    address = urlsplit(server)
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        with socket.create_connection((address.hostname or "", port), timeout=CONNECT_SECONDS):
            return
    except (OSError, ValueError) as error:
        raise errors.NotMeasuredError(
            f"the cluster at {server} does not answer: {error}", place=str(kubeconfig), hint=remedy
        ) from error


def _server(kubeconfig: Path, remedy: str | None) -> str:
    """The API server's URL of the current context (the first cluster without one)."""
    report = issues.Report()
    document = documents.load(kubeconfig, report)
    if document is None:
        raise errors.InputError(f"no kubeconfig: {report.errors[0].message}", place=str(kubeconfig), hint=remedy)
    try:
        data = document.data
        contexts = {entry["name"]: entry["context"]["cluster"] for entry in data.get("contexts") or ()}
        clusters = {entry["name"]: entry["cluster"]["server"] for entry in data["clusters"]}
        name = contexts.get(data.get("current-context"), next(iter(clusters)))
        return str(clusters[name])
    except (AttributeError, KeyError, StopIteration, TypeError) as error:
        raise errors.InputError("not a kubeconfig: it names no server", place=str(kubeconfig), hint=remedy) from error
