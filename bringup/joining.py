"""What a node needs to join a cluster: the API server's address and CA, and a token of its own.

The token is the node's credential and nothing else's; it is read from a private
file when `join` needs it and handed over as a file, never as an argument.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from lockstep.base import credentials, documents, errors, issues
from lockstep.base.names import NodeName
from lockstep.base.settings import Settings

__all__ = ["Joining", "from_environment", "node_kubeconfig"]

USER: Final = "default-auth"
"""kubeadm's name of the kubelet's user in its kubeconfig."""


@dataclass(frozen=True, slots=True)
class Joining:
    """The cluster of this run."""

    kubeconfig: Path
    """Of an administrator; its path goes on, its content stays here."""
    token: Callable[[NodeName], SecretStr] = field(repr=False)
    """The node's own token. Raises `errors.InputError` when there is none."""


def from_environment(settings: Settings, environ: Mapping[str, str], kubeconfig: Path | None = None) -> Joining | None:
    """The cluster to join: ``kubeconfig``, else KUBECONFIG, else ``kubeconfig`` in the state folder; None without one.

    Tokens lie in LOCKSTEP_NODE_TOKENS/NODE, else in ``node-tokens/NODE`` of the state
    folder, readable by their owner only. Raises `errors.InputError` for a path that is named but not there.
    """
    named = kubeconfig or (Path(environ["KUBECONFIG"]) if environ.get("KUBECONFIG") else None)
    own = settings.state / "kubeconfig"
    found = named or own
    if not found.is_file():
        # A lab's environment names its own kubeconfig, also where the lab was started without a control plane.
        if named is not None and named != own:
            raise errors.InputError(
                "there is no kubeconfig", place=str(named), hint="start the lab, or unset KUBECONFIG"
            )
        return None
    folder = Path(environ.get("LOCKSTEP_NODE_TOKENS") or settings.state / "node-tokens")

    def token(node: NodeName) -> SecretStr:
        reference = credentials.Reference(file=folder / node)
        return credentials.resolve(reference, place=f"node token of {node}")

    return Joining(found, token)


def node_kubeconfig(joining: Joining, node: NodeName) -> str:
    """The kubelet's kubeconfig, JSON (which is YAML): server and CA of the administrator's, the node's own token.

    Raises `errors.InputError`.
    """
    cluster = _cluster(joining.kubeconfig)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": USER, "user": {"token": joining.token(node).get_secret_value()}}],
        "contexts": [{"name": "node", "context": {"cluster": "cluster", "user": USER}}],
        "current-context": "node",
    }
    return json.dumps(document, indent=1) + "\n"


def _cluster(path: Path) -> dict[str, Any]:
    """The current context's cluster entry, the CA inlined."""
    report = issues.Report()
    document = documents.load(path, report)
    report.raise_if_errors(f"kubeconfig {path}")
    assert document is not None  # noqa: S101 - no errors, so there is one
    data = document.data
    try:
        contexts = {entry["name"]: entry["context"] for entry in data["contexts"]}
        clusters = {entry["name"]: entry["cluster"] for entry in data["clusters"]}
        found = dict(clusters[contexts[data["current-context"]]["cluster"]])
    except (KeyError, TypeError) as error:
        raise errors.InputError(f"no current cluster in it: {error}", place=str(path)) from error
    authority = found.pop("certificate-authority", None)
    if authority is not None:
        file = Path(authority) if Path(authority).is_absolute() else path.parent / authority
        try:
            found["certificate-authority-data"] = base64.b64encode(file.read_bytes()).decode()
        except OSError as error:
            raise errors.InputError(f"its CA cannot be read: {error.strerror}", place=str(file)) from error
    return found
