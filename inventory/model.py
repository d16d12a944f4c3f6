"""Fleet, pool, node and SKU: frozen values, as the files declare them.

`FleetFile` and its parts mirror the YAML (docs/fleet-file.md is generated from
the field texts here); `Fleet`, `Pool` and `Node` are what the rest works with:
host ranges unfolded, defaults filled in, one object per node.
"""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from lockstep.base import quantities
from lockstep.base.credentials import Reference
from lockstep.base.documents import Model
from lockstep.base.names import DomainName, FleetName, InstanceKind, NodeName, PinsetName, PoolName, Slot

__all__ = [
    "Bmc",
    "Disruption",
    "Fleet",
    "FleetFile",
    "Kind",
    "Node",
    "NodeState",
    "NodesEntry",
    "Pool",
    "PoolEntry",
    "Repository",
    "Sku",
    "SkuFile",
    "Source",
    "Ssh",
    "Waiver",
]


class Kind(enum.StrEnum):
    """The closed list of disruptions: the same words in policy, plan and ``--allow``."""

    INSTALL = "install"
    DRAIN = "drain"
    RESTART = "restart"
    RELOAD = "reload"
    RESET = "reset"
    REBOOT = "reboot"
    POWER_CYCLE = "power-cycle"
    REIMAGE = "reimage"
    FIRMWARE = "firmware"


class NodeState(enum.StrEnum):
    """What the operator says of a node; ``repair`` and ``held`` are never touched, only audited."""

    NEW = "new"
    IN_SERVICE = "in-service"
    REPAIR = "repair"
    HELD = "held"


class Source(enum.StrEnum):
    """Where facts of a pool can be read."""

    SSH = "ssh"
    REDFISH = "redfish"
    KUBERNETES = "kubernetes"
    PROMETHEUS = "prometheus"


class Ssh(Model):
    """How to reach the nodes; what is not given comes from ``~/.ssh/config``."""

    user: Annotated[str | None, Field(description="Login name; None: ~/.ssh/config, else the current user.")] = None
    port: Annotated[int | None, Field(ge=1, le=65535, description="TCP port; None: ~/.ssh/config, else 22.")] = None
    identity: Annotated[
        Reference | None, Field(description="Private key by reference; None: agent and ~/.ssh/config.")
    ] = None
    known_hosts: Annotated[
        Path | None, Field(description="File with the first host keys of the nodes; None: ~/.ssh/known_hosts.")
    ] = None


class Repository(Model):
    """One signed repository: APT (flat when ``suite`` ends in a slash) or RPM."""

    apt: Annotated[str | None, Field(description="URL (https, http on loopback, or file) of an APT repository.")] = None
    rpm: Annotated[
        str | None,
        Field(description="The same of an RPM repository, the folder that holds `repodata/`; in place of `apt`."),
    ] = None
    suite: Annotated[str, Field(description="Suite, or `./` for a flat repository.")] = "./"
    components: Annotated[
        tuple[str, ...], Field(description="Components of a suite; empty for a flat repository.")
    ] = ()
    key: Annotated[
        Path | None, Field(description="Public key file that signs the repository; relative to the fleet file.")
    ] = None

    @model_validator(mode="after")
    def _one_kind(self) -> Repository:
        if (self.apt is None) == (self.rpm is None):
            raise ValueError("give one of `apt` and `rpm`")
        if self.rpm is not None and (self.components or self.suite != "./"):
            raise ValueError("`suite` and `components` are of APT repositories")
        return self

    @property
    def address(self) -> str:
        """The URL, of either kind."""
        return self.apt or self.rpm or ""


class Disruption(Model):
    """What may be done to nodes that are not ours to disturb. Default: nothing."""

    allow: Annotated[frozenset[Kind], Field(description="Kinds allowed without asking again.")] = frozenset()
    wait: Annotated[
        int,
        WithJsonSchema({"type": ["string", "integer"], "default": "30m"}),
        Field(description="How long a node may take to become vacant before it is skipped as busy: `30m`, or seconds."),
    ] = 1800
    window: Annotated[
        str, Field(description="When disruptions may start; `always` is the one value supported yet.")
    ] = "always"
    budget: Annotated[
        quantities.Share,
        WithJsonSchema({"type": ["string", "integer"], "default": "10%"}),
        Field(
            description="Nodes of the pool out of service at once by us: `10%` or a number; rounds up, never below one."
        ),
    ] = quantities.Share(10.0, None)
    plan: Annotated[
        Literal["required", "optional"], Field(description="Whether an approved plan digest is needed.")
    ] = "optional"

    @field_validator("wait", mode="before")
    @classmethod
    def _duration(cls, value: object) -> object:
        return quantities.parse_duration_seconds(value) if isinstance(value, str) else value

    @field_validator("budget", mode="before")
    @classmethod
    def _share(cls, value: object) -> object:
        return quantities.parse_share(value) if isinstance(value, (str, int)) else value


class Bmc(Model):
    """Power and re-imaging of a node: a Redfish address, or commands as argument lists."""

    redfish: Annotated[
        str | None,
        Field(description="https URL of the BMC; `{node}` is the node's name, a range unfolds beside the entry's."),
    ] = None
    ca: Annotated[
        Path | None, Field(description="Certificates that are trusted for it; relative to the fleet file.")
    ] = None
    credentials: Annotated[Reference | None, Field(description="`USER:PASSWORD` by reference, for redfish.")] = None
    driver: Annotated[
        Literal["redfish", "command"],
        Field(description="`command` runs the argument lists below; `{node}` in them is the node's name."),
    ] = "redfish"
    on: Annotated[tuple[str, ...] | None, Field(description="Power on.")] = None
    off: Annotated[tuple[str, ...] | None, Field(description="Power off, hard.")] = None
    state: Annotated[tuple[str, ...] | None, Field(description="Prints `on` or `off`.")] = None
    reimage: Annotated[
        tuple[str, ...] | None,
        Field(description="Fresh operating system; prints the new SSH host key as `TYPE BASE64`."),
    ] = None

    @model_validator(mode="after")
    def _complete(self) -> Bmc:
        commands = {"on": self.on, "off": self.off, "state": self.state}
        if self.driver == "command" and (missing := [name for name, value in commands.items() if not value]):
            raise ValueError(f"driver command needs {', '.join(missing)}")
        if self.driver == "redfish" and self.redfish is None:
            raise ValueError("driver redfish needs the address `redfish: https://…`")
        if self.redfish is not None and not self.redfish.startswith(("https://", "http://127.")):
            raise ValueError("`redfish` is an https URL: a BMC's password goes over it")
        return self


class Waiver(Model):
    """A deviation of one node that is put up with for a while: shown in every report, a finding once it has expired."""

    coordinate: Annotated[str, Field(description="Where it deviates: `firmware.gpu[gpu3]@running`.")]
    value: Annotated[str, Field(description="The one value that is put up with; `absent` for what is not there.")]
    reason: Annotated[str, Field(min_length=3, description="Why, or the ticket that says so.")]
    expires: Annotated[datetime.date, Field(description="Last day on which it holds, in UTC.")]


class NodesEntry(Model):
    """One entry of `nodes:`; its key is a node name or a host range, and ranges here unfold beside it."""

    slot: Annotated[str | None, Field(description="Slot or range of slots; None: the node's name.")] = None
    address: Annotated[str | None, Field(description="Address or range; None: the node's name is resolved.")] = None
    domain: Annotated[str | None, Field(description="NVLink domain; None: the slot is its own domain.")] = None
    spare: Annotated[bool, Field(description="Staged to verify and audited, never joined.")] = False
    state: Annotated[NodeState, Field(description="`new`, `in-service`, `repair` or `held`.")] = NodeState.IN_SERVICE
    holder: Annotated[str | None, Field(description="Who holds a node in repair or held.")] = None
    generation: Annotated[
        int, Field(ge=1, description="Counts the machines that stood in this slot; bumped by `replace`.")
    ] = 1
    serial: Annotated[str | None, Field(description="Chassis serial, or a range of them; None: not declared.")] = None
    bmc: Annotated[Bmc | None, Field(description="Power and re-imaging; None: the pool's.")] = None
    waivers: Annotated[tuple[Waiver, ...], Field(description="Deviations put up with, for a while.")] = ()


class PoolEntry(Model):
    """One pool: nodes that must be identical."""

    name: Annotated[str, Field(description="Name of the pool, a DNS label.")]
    sku: Annotated[str, Field(description="File name in `inventory/skus/`, without `.yaml`.")]
    os: Annotated[
        str, Field(description="Operating system, such as `ubuntu-24.04-amd64`; with the pinset it names the lock.")
    ]
    pinset: Annotated[str, Field(description="File name in `pinsets/catalog/`, without `.yaml`.")]
    sources: Annotated[tuple[Source, ...], Field(description="Where facts can be read here.")] = (Source.SSH,)
    disruption: Annotated[Disruption, Field(description="What may be disturbed, and when.")] = Disruption()
    bmc: Annotated[Bmc | None, Field(description="For nodes that give none of their own.")] = None
    nodes: Annotated[dict[str, NodesEntry], Field(description="Node name or host range → entry.")]


class FleetFile(Model):
    """A fleet file as written."""

    fleet: Annotated[str, Field(description="Name of the fleet, a DNS label.")]
    ssh: Annotated[Ssh, Field(description="How to reach the nodes.")] = Ssh()
    repositories: Annotated[tuple[Repository, ...], Field(description="Where packages come from.")] = ()
    pools: Annotated[tuple[PoolEntry, ...], Field(description="The pools.")]


@dataclass(frozen=True, slots=True)
class Node:
    """One machine in one slot."""

    name: NodeName
    pool: PoolName
    slot: Slot
    address: str
    """IP address or resolvable name."""
    domain: DomainName
    """Declared NVLink domain; the slot's name where none was declared."""
    spare: bool = False
    state: NodeState = NodeState.IN_SERVICE
    holder: str | None = None
    generation: int = 1
    serial: str | None = None
    bmc: Bmc | None = None
    line: int | None = None
    """Line of the entry in the fleet file."""
    waivers: tuple[Waiver, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """The consistency domain."""

    name: PoolName
    sku: Sku
    os: str
    pinset: PinsetName
    sources: tuple[Source, ...]
    disruption: Disruption
    nodes: tuple[Node, ...]
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """All machines of one environment."""

    name: FleetName
    ssh: Ssh
    repositories: tuple[Repository, ...]
    pools: tuple[Pool, ...]
    path: Path
    """The file it was read from."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, in file order."""
        return tuple(node for pool in self.pools for node in pool.nodes)

    def node(self, name: str) -> Node | None:
        """The node of that name, None if the fleet has none."""
        return next((node for node in self.nodes if node.name == name), None)

    def pool_of(self, node: Node) -> Pool:
        """The pool that the node stands in."""
        return next(pool for pool in self.pools if pool.name == node.pool)


class SkuFile(Model):
    """A machine type: what must be in it, where its facts come from."""

    sku: Annotated[str, Field(description="Name, equal to the file's.")]
    description: Annotated[str, Field(description="One line for people.")] = ""
    vendor: Annotated[Literal["nvidia", "amd"], Field(description="Whose accelerators.")] = "nvidia"
    accelerator: Annotated[str, Field(description="Product name as the vendor tool prints it.")]
    gpus: Annotated[
        dict[str, str], Field(description="Expected GPUs: PCI address (`0008:01:00.0`) → slot name (`gpu0`).")
    ]
    nics: Annotated[dict[str, str], Field(description="Expected NICs: PCI address → slot name.")] = {}
    instances: Annotated[
        dict[InstanceKind, dict[str, str]],
        Field(
            description="Further expected instances by kind (`nvswitch`, `erot`, `cpld` …): "
            "name at the source (`HGX_FW_NVSwitch_0`) → slot name (`nvswitch0`)."
        ),
    ] = {}
    nvlink: Annotated[
        Literal["rack", "node", "none"],
        Field(description="`rack`: one fabric over nodes (NVL72); `node`: switches inside (HGX); `none`."),
    ] = "none"
    burnin: Annotated[
        Literal["none"], Field(description="`none` is repeated in journal and reports; other kinds come later.")
    ] = "none"
    daemons: Annotated[
        tuple[str, ...], Field(description="Vendor processes that may hold a GPU device and do not count as jobs.")
    ] = ()

    def slots(self, kind: str) -> tuple[str, ...]:
        """Slot names of the expected instances of a kind, in file order; empty for one that the SKU does not name."""
        return self.all_slots().get(kind, ())

    def all_slots(self) -> dict[str, tuple[str, ...]]:
        """Kind of instance → slot names, in file order."""
        named: dict[InstanceKind, dict[str, str]] = {"gpu": self.gpus, "nic": self.nics, **self.instances}
        return {str(kind): tuple(slots.values()) for kind, slots in named.items()}

    @model_validator(mode="after")
    def _gpus_and_nics_have_their_own_lists(self) -> SkuFile:
        if twice := {"gpu", "nic"} & set(self.instances):
            raise ValueError(f"{', '.join(sorted(twice))} in `instances`: they stand under `gpus` and `nics`")
        return self


Sku = SkuFile
