"""The Kubernetes cluster that nodes are joined to: read, mark, fence and admit Nodes.

Every write reads the Node anew, decides on what it read, and fails when the Node changed
meanwhile (then it reads again): nothing acts on a stale event. Only cordons, taints and
marks that Lockstep set are ever lifted.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
import lightkube
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.resources.core_v1 import Namespace, Node, Pod
from lightkube.resources.resource_v1 import ResourceClaim, ResourceSlice
from lightkube.types import PatchType

from bringup import cluster_objects as objects
from bringup.cluster_views import VACATING, ClaimRef, DaemonView, ImageView, NodeView, PodRef, SliceView
from lockstep.base import errors

__all__ = ["Cluster"]

CONNECT_SECONDS: Final = 3.0
"""A control plane that does not accept a connection in this time is not one to change nodes with."""
ANSWER_SECONDS: Final = 15.0
"""The longest request here, one chunk of a list, takes well under a second on a busy API server."""
CHUNK: Final = 500
CONFLICTS: Final = 10
"""Writes tried anew when the Node changed between reading and writing; kubelets write a few times a minute."""
POLL_SECONDS: Final = 1.0

Change = Callable[[Mapping[str, Any]], "objects.Patch | None"]
"""Node as read → patch, or None when there is nothing to change."""


class Cluster:
    """One cluster. A context manager; contacts the cluster at the first call of a method, not before.

    All methods raise `errors.NotMeasuredError` when the API server cannot be reached,
    `errors.InputError` when it does not know our credentials, `errors.RefusedError` when
    they do not suffice, `errors.EngineError` for any other answer.
    """

    def __init__(self, client: lightkube.Client, place: str) -> None:
        self._client = client
        self._place = place

    @classmethod
    def from_kubeconfig(cls, path: Path, context: str | None = None) -> Cluster:
        """The cluster of a context, None: the current one. Raises `errors.InputError` when file or context is wrong."""
        if not path.is_file():
            raise errors.InputError("there is no kubeconfig", place=str(path), hint="set KUBECONFIG to the cluster's")
        try:
            config = KubeConfig.from_file(path).get(context)
            if config is None or not config.cluster.server:
                raise ConfigError("no server")
            limits = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
            client = lightkube.Client(
                config, timeout=limits, field_manager=objects.MANAGER, trust_env=not _on_loopback(config.cluster.server)
            )
        except Exception as error:  # the reader raises whatever its parsers raise: YAML, key, type, SSL and OS errors
            reason = f"{type(error).__name__}: {error}" if not isinstance(error, ConfigError) else str(error)
            raise errors.InputError(f"not a usable kubeconfig: {reason}", place=str(path)) from error
        return cls(client, config.cluster.server)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    # ---- reading

    def identity(self) -> str:
        """What stays the same for the life of the cluster: the UID of the namespace kube-system."""
        with self._translated("read namespace kube-system"):
            found = self._client.get(Namespace, "kube-system")
        return str(found.metadata.uid if found.metadata else "")

    def nodes(self) -> list[NodeView]:
        """All Nodes, by name."""
        with self._translated("list nodes"):
            found = [objects.node_view(node.to_dict()) for node in self._client.list(Node, chunk_size=CHUNK)]
        return sorted(found, key=lambda node: node.name)

    def node(self, name: str) -> NodeView | None:
        """The Node, None where there is none."""
        found = self._read(name)
        return objects.node_view(found) if found is not None else None

    def pods_on(self, name: str) -> list[PodRef]:
        """Pods that occupy the node: neither finished, nor a DaemonSet's, nor static (mirror) pods."""
        with self._translated(f"list pods on {name}"):
            pods = self._client.list(Pod, namespace="*", fields={"spec.nodeName": name}, chunk_size=CHUNK)
            found = [pod.to_dict() for pod in pods]
        return sorted((objects.pod_ref(pod) for pod in found if objects.occupies(pod)), key=str)

    def software(self, part: str, images: Collection[str]) -> tuple[dict[str, list[DaemonView]], list[ImageView]]:
        """(node → pods of DaemonSets whose name contains ``part``; running images whose short name is in ``images``).

        One listing of all pods, piece by piece.
        """
        daemons: dict[str, list[DaemonView]] = {}
        running: list[ImageView] = []
        with self._translated("list pods"):
            for pod in self._client.list(Pod, namespace="*", chunk_size=CHUNK):
                read = pod.to_dict()
                seen = objects.daemon_view(read)
                if seen is not None and part in seen[1].owner:
                    daemons.setdefault(seen[0], []).append(seen[1])
                running += [image for image in objects.image_views(read) if _short(image.name) in images]
        return daemons, running

    def all_slices(self) -> dict[str, list[SliceView]]:
        """Node → its ResourceSlices; those of no one node are left out."""
        found: dict[str, list[SliceView]] = {}
        with self._translated("list resource slices"):
            for piece in self._client.list(ResourceSlice, chunk_size=CHUNK):
                one = piece.to_dict()
                if node := one["spec"].get("nodeName"):
                    found.setdefault(node, []).append(objects.slice_view(one))
        return found

    def claims_on(self, name: str) -> list[ClaimRef]:
        """ResourceClaims with devices of the node allocated, used or not."""
        pools = {(piece.driver, piece.pool) for piece in self.resource_slices(name)}
        with self._translated("list resource claims"):
            claims = self._client.list(ResourceClaim, namespace="*", chunk_size=CHUNK)
            found = [claim.to_dict() for claim in claims]
        mine = [claim for claim in found if objects.holds_devices_of(claim, name, pools)]
        return sorted((objects.claim_ref(claim) for claim in mine), key=str)

    def resource_slices(self, name: str) -> list[SliceView]:
        """ResourceSlices of the node, by driver and name."""
        with self._translated(f"list resource slices of {name}"):
            pieces = self._client.list(ResourceSlice, fields={"spec.nodeName": name}, chunk_size=CHUNK)
            found = [objects.slice_view(piece.to_dict()) for piece in pieces]
        return sorted(found, key=lambda piece: (piece.driver, piece.name))

    def wait_ready(self, name: str, *, boot_id: str | None = None, seconds: float = 120.0) -> NodeView:
        """Wait until the Node is there and Ready, with ``boot_id`` of that boot when it is given.

        Raises `errors.NotMeasuredError` after ``seconds``, saying what was missing. An API
        server that cannot be reached for a moment is waited for as well.
        """
        limit = time.monotonic() + seconds
        while True:
            try:
                view = self.node(name)
                missing = _missing(view, boot_id)
            except errors.NotMeasuredError as error:
                view, missing = None, error.message
            if view is not None and not missing:
                return view
            if time.monotonic() >= limit:
                raise errors.NotMeasuredError(f"not ready after {seconds:.0f} s: {missing}", place=name)
            time.sleep(POLL_SECONDS)

    # ---- writing

    def vacate(self, name: str, reason: str, holder: str) -> None:
        """Keep new pods away: our taint, and a cordon marked as ours unless somebody else's is there already.

        ``holder`` names the run that does it, for people. Repeating it changes nothing.
        """
        self._change(name, "vacate", lambda node: objects.vacating(node, reason, holder))

    def release(self, name: str) -> bool:
        """Lift what `vacate` set and nothing else; whether there was something to lift."""
        return self._change(name, "release", lambda node: objects.lifting(node, {VACATING}))

    def fence(self, name: str, reason: str) -> None:
        """Say that the node is not in step: condition InStep False, and a taint that keeps new pods away.

        What runs there goes on. `admit` lifts it.
        """
        self._change(name, "fence", lambda node: objects.fencing(node, reason))
        self._set_in_step(name, False, "Fenced", reason, lambda _: None)

    def admit(self, name: str, lock: str, *, boot_id: str | None = None) -> NodeView:
        """Let the node take jobs: our taints and our cordon away, the lock's digest on it, condition InStep True.

        ``lock`` is the whole digest (64 hex). With ``boot_id`` it is refused
        (`errors.RefusedError`) when the Node reports another boot than the one that was
        verified. Taints, cordon and marks change in one write, the last one: killed before
        it, the node takes no jobs.
        """

        def check(node: Mapping[str, Any]) -> None:
            seen = objects.node_view(node).boot_id
            if boot_id is not None and seen != boot_id:
                raise errors.RefusedError(
                    f"verified in boot {boot_id}, but its Node reports boot {seen or 'unknown'}",
                    place=name,
                    hint="wait for the kubelet to report, then verify it again",
                )

        def change(node: Mapping[str, Any]) -> objects.Patch:
            check(node)
            return objects.admitting(node, lock)

        self._set_in_step(name, True, "LockMatches", f"equals lock {lock}", check)
        self._change(name, "admit", change)
        view = self.node(name)
        if view is None:
            raise self._no_node(name, "admit")
        return view

    def delete_node(self, name: str, *, uid: str | None = None) -> bool:
        """Delete the Node object (its slices follow); False where there was none, or only one of another ``uid``."""
        found = self._read(name)
        if found is None or (uid is not None and objects.node_view(found).uid != uid):
            return False
        try:
            with self._translated(f"delete node {name}"):
                self._client.delete(Node, name)
        except _NotFoundError:
            return False
        return True

    # ---- the one way of writing

    def _change(self, name: str, what: str, change: Change) -> bool:
        """Read, decide, write if it is still the same Node object as read; False when nothing had to change."""
        return self._write(name, what, change, Node, PatchType.MERGE)

    def _set_in_step(
        self, name: str, value: bool, reason: str, message: str, check: Callable[[Mapping[str, Any]], None]
    ) -> None:
        def change(node: Mapping[str, Any]) -> objects.Patch | None:
            check(node)
            return objects.with_condition(node, value, reason, message, datetime.datetime.now(datetime.UTC))

        # Strategic: conditions are merged by their type, those of the kubelet stay.
        self._write(name, "set the condition of", change, Node.Status, PatchType.STRATEGIC)

    def _write(self, name: str, what: str, change: Change, kind: Any, patch_type: PatchType) -> bool:
        for _ in range(CONFLICTS):
            node = self._read(name)
            if node is None:
                raise self._no_node(name, what)
            patch = change(node)
            if patch is None:
                return False
            # The write fails when this is not the object that was read, or not the state of it.
            patch["metadata"] |= {key: node["metadata"][key] for key in ("resourceVersion", "uid")}
            try:
                with self._translated(f"{what} node {name}"):
                    self._client.patch(kind, name, patch, patch_type=patch_type)
            except _ConflictError:
                continue
            except _NotFoundError:
                raise self._no_node(name, what) from None
            return True
        raise errors.BusyError(f"cannot {what} node {name}: it changed under {CONFLICTS} attempts", place=self._place)

    def _read(self, name: str) -> Mapping[str, Any] | None:
        try:
            with self._translated(f"read node {name}"):
                return self._client.get(Node, name).to_dict()
        except _NotFoundError:
            return None

    def _no_node(self, name: str, what: str) -> errors.NotMeasuredError:
        return errors.NotMeasuredError(f"cannot {what} it: the cluster has no Node of that name", place=name)

    @contextlib.contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            code, message = error.status.code, error.status.message
            if code == 404:
                raise _NotFoundError from error
            if code == 409:
                raise _ConflictError from error
            if code == 401:
                hint = "the token or certificate in KUBECONFIG is of another cluster, or has expired"
                raise errors.InputError("the API server does not know us", place=self._place, hint=hint) from error
            if code == 403:
                raise errors.RefusedError(f"may not {what}: {message}", place=self._place) from error
            raise errors.EngineError(f"cannot {what}: {message}", place=self._place) from error
        except httpx2.HTTPStatusError as error:
            code = error.response.status_code
            raise errors.EngineError(f"cannot {what}: HTTP {code}", place=self._place) from error
        except httpx2.HTTPError as error:
            reason = str(error) or type(error).__name__
            hint = "is the cluster running? For a lab: lockstep lab up"
            raise errors.NotMeasuredError(
                f"the API server cannot be reached: {reason}", place=self._place, hint=hint
            ) from error
        except ValueError as error:  # no JSON, or no object of the kind that was asked for
            reason = f"cannot {what}: what answers is no Kubernetes API ({error})"
            raise errors.NotMeasuredError(reason, place=self._place) from error


class _NotFoundError(Exception):
    """The object is not there (any more)."""


class _ConflictError(Exception):
    """The object changed since it was read."""


def _short(image: str) -> str:
    """``nvcr.io/nvidia/gpu-operator:v26.7.0`` → ``gpu-operator``; a digest in place of the tag, too."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]


def _on_loopback(server: str) -> bool:
    """Proxies of the environment are for real clusters; a lab's is on this machine."""
    host = urllib.parse.urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _missing(view: NodeView | None, boot_id: str | None) -> str:
    if view is None:
        return "it is not registered in the cluster"
    if boot_id is not None and view.boot_id != boot_id:
        return f"its Node reports boot {view.boot_id or 'unknown'}, not {boot_id}"
    return "" if view.ready else "its Node is not Ready"
