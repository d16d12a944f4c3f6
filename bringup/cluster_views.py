"""What `bringup.cluster` shows of a cluster: frozen values, and the names of our marks. Contacts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "CORDONED_BY",
    "FENCED",
    "IN_STEP",
    "LOCK_DIGEST",
    "LOCK_LABEL",
    "OUR_TAINTS",
    "REASON",
    "UNVERIFIED",
    "VACATING",
    "ClaimRef",
    "DaemonView",
    "DeviceView",
    "ImageView",
    "NodeView",
    "PodRef",
    "SliceView",
    "TaintView",
]

UNVERIFIED: Final = "lockstep.dev/unverified"
"""Taint that a Node registers with; only `admit` takes it away."""
FENCED: Final = "lockstep.dev/fenced"
"""Taint of a Node that was admitted once and may take no new jobs."""
VACATING: Final = "lockstep.dev/vacating"
"""Taint of a Node that is emptied before a disruption."""
OUR_TAINTS: Final = frozenset({UNVERIFIED, FENCED, VACATING})
LOCK_LABEL: Final = "lockstep.dev/lock"
"""First 16 hex of the lock's digest, for selectors; equality is always decided on the whole."""
LOCK_DIGEST: Final = "lockstep.dev/lock-digest"
"""Annotation with the whole digest."""
CORDONED_BY: Final = "lockstep.dev/cordoned-by"
"""Annotation: the cordon is ours, set by this holder."""
REASON: Final = "lockstep.dev/reason"
"""Annotation: why we vacate or fence."""
IN_STEP: Final = "lockstep.dev/InStep"
"""Condition: the node equals its lock."""


@dataclass(frozen=True, slots=True)
class TaintView:
    """One taint of a Node."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A Node as it was read, at one moment."""

    name: str
    uid: str
    ready: bool | None
    """None: unknown (the node's lease ran out), or never said."""
    unschedulable: bool
    taints: tuple[TaintView, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    boot_id: str
    machine_id: str
    system_uuid: str
    kernel: str
    os_image: str
    kubelet: str
    """Version, ``v1.37.2``."""
    address: str | None
    """Internal IP."""
    in_step: bool | None
    """The condition InStep; None where nobody said."""
    cordon_is_ours: bool
    """Cordoned, by us, and by nobody else since."""
    runtime: str = ""
    """Container runtime with its version, ``containerd://2.1.4``."""
    machine: str = ""
    """Architecture, ``arm64``."""
    ready_since: str = ""
    """When its condition Ready last changed, as the API writes it (RFC 3339, UTC)."""

    @property
    def unverified(self) -> bool:
        """Whether it carries the taint that it registered with."""
        return any(taint.key == UNVERIFIED for taint in self.taints)

    @property
    def fenced(self) -> bool:
        """Whether we fenced it."""
        return any(taint.key == FENCED for taint in self.taints)

    @property
    def lock_digest(self) -> str | None:
        """Whole digest of the lock that it was admitted on."""
        return self.annotations.get(LOCK_DIGEST)

    @property
    def admitted(self) -> bool:
        """Whether it may take jobs as far as Lockstep is concerned; a cordon of others is not looked at."""
        return not self.unverified and not self.fenced and self.lock_digest is not None


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod that occupies a node."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class DaemonView:
    """A DaemonSet's pod on a node."""

    owner: str
    """Name of the DaemonSet."""
    ready: bool
    ready_since: str
    """When its condition Ready last changed (RFC 3339, UTC)."""


@dataclass(frozen=True, slots=True)
class ImageView:
    """An image that a running pod was started from."""

    node: str
    name: str
    """``nvcr.io/nvidia/gpu-operator:v26.7.0``, as its pod has it."""
    daemon: bool
    """Of a DaemonSet: it says something of its node; any other pod of the cluster as a whole."""


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A ResourceClaim that holds devices of a node."""

    namespace: str
    name: str
    uid: str
    devices: tuple[str, ...]
    """``driver/pool/device``."""
    reserved_for: tuple[str, ...]
    """Names of the pods that use it; empty: allocated and unused, it holds its devices all the same."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device of a ResourceSlice."""

    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Values as text, whatever their type."""


@dataclass(frozen=True, slots=True)
class SliceView:
    """A ResourceSlice of a node."""

    name: str
    driver: str
    pool: str
    generation: int
    devices: tuple[DeviceView, ...]
