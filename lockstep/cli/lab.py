"""`lockstep lab`: a fleet in a box on this machine."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import rich.console
import rich.table
import typer

from lockstep.base import settings

if TYPE_CHECKING:
    from lab import labs

__all__ = ["app"]

app = typer.Typer(help="A fleet in a box on this machine: real sshd, apt, reboots; no GPU.", rich_markup_mode=None)

LabOption = Annotated[
    str | None,
    typer.Option("--lab", help="Name or state folder of the lab; default: the one of LOCKSTEP_STATE, else `lab`."),
]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.")]
DEFAULT = "lab"


def _state(name: str | None) -> Path:
    """The state folder of the lab that a command is about."""
    config = settings.load()
    if name is None and (config.state / "lab.json").is_file():
        return config.state
    return Path(name).absolute() if name and "/" in name else config.labs / (name or DEFAULT)


def _say(started: float, line: str) -> None:
    print(f"{time.monotonic() - started:6.1f} s  {line}", file=sys.stderr, flush=True)


@app.command()
def up(
    fleet: Annotated[str, typer.Argument(metavar="[FLEET]", help="Fleet whose machines to make.")] = DEFAULT,
    no_cluster: Annotated[bool, typer.Option("--no-cluster", help="Nodes only, no Kubernetes control plane.")] = False,
) -> None:
    """Make the machines of a fleet and start them, with a Kubernetes control plane. Safe to repeat.

    Nodes are namespaces of this machine with their own Debian, sshd, reboots and stand-in vendor tools; their addresses
    lie in 127.0.0.0/8. The lab's whole state is one folder, see `lockstep lab status`.

    \b
    Example:
      lockstep lab up
      lockstep lab up ./my-fleet.yaml --no-cluster
    """
    from inventory import load
    from lab import base, labs, spec

    base.need_root("lab up")
    started = time.monotonic()
    found = labs.up(spec.from_fleet(load.fleet(fleet)), lambda line: _say(started, line), cluster=not no_cluster)
    _table(found)


@app.command()
def status(lab: LabOption = None) -> None:
    """Show each node's power, sshd, boot id and what was broken on purpose, and the control plane's programs.

    \b
    Example:
      lockstep lab status
    """
    from lab import base, labs

    base.need_root("lab status")
    _table(labs.status(_state(lab)))


def _table(found: labs.Status) -> None:
    from lab import control_plane

    # A log has no width of its own, and nobody wants half an address.
    console = rich.console.Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    table = rich.table.Table(box=None, header_style="bold", pad_edge=False)
    for title in ("NODE", "ADDRESS", "POWER", "SSH", "BOOT ID", "SERIAL", "BROKEN"):
        table.add_column(title, overflow="fold")
    for node in found.nodes:
        table.add_row(
            node.node.name,
            f"{node.node.address}:{node.node.port}",
            "on" if node.power else "off",
            node.ssh,
            (node.boot_id or "–")[:8],
            node.serial,
            ", ".join(node.faults) or "–",
        )
    console.print(table)
    for program in control_plane.status(found.state):
        where = f"pid {program.pid}, port {program.port}" if program.pid else "does not run"
        console.print(f"{program.name}: {'healthy' if program.healthy else program.detail or 'not healthy'} ({where})")
    console.print(f"state: {found.state}")


@app.command()
def down(
    name: Annotated[str | None, typer.Argument(metavar="[LAB]", help="Name of the lab.")] = None,
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Also remove its whole state: disks, keys, journal, etcd.")
    ] = False,
) -> None:
    """End every process of a lab and keep its state, so that `lab up` goes on with it.

    \b
    Example:
      lockstep lab down
      lockstep lab down --wipe
    """
    from lab import labs

    started = time.monotonic()
    state = _state(name)
    where = dataclasses.replace(settings.load(), labs=state.parent)
    labs.down(state.name, lambda line: _say(started, line), wipe=wipe, config=where)


@app.command(name="break")
def break_(
    node: NodeArgument,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="other-version, upgraded-not-rebooted, gpu-firmware, gpu-lost, sshd-hung, node-dead, host-key, "
            "smi-hangs, nccl-shadowed, hold-removed, disk-full.",
        ),
    ],
    package: Annotated[
        str | None, typer.Option("--package", help="For other-version and hold-removed; default libnccl2.")
    ] = None,
    version: Annotated[str | None, typer.Option("--version", help="For other-version; default a neighbour.")] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="Slot for gpu-firmware and gpu-lost; default the last.")
    ] = None,
    lab: LabOption = None,
) -> None:
    """Make something go wrong on a node, inside it and without telling Lockstep.

    \b
    Example:
      lockstep lab break gpu-002 other-version
      lockstep lab break gpu-003 gpu-firmware --gpu gpu1
    """
    from lab import base, faults

    base.need_root("lab break")
    try:
        wanted = faults.Kind(kind)
    except ValueError:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(faults.Kind)}", param_hint="KIND") from None
    print(faults.break_node(_state(lab), node, wanted, package=package, version=version, slot=gpu))


@app.command()
def mend(
    nodes: Annotated[list[str] | None, typer.Argument(metavar="[NODE]…", help="Nodes to mend.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every node of the lab.")] = False,
    lab: LabOption = None,
) -> None:
    """Undo what `lab break` did.

    \b
    Example:
      lockstep lab mend gpu-002
      lockstep lab mend --all
    """
    from lab import base, faults, spec

    base.need_root("lab mend")
    state = _state(lab)
    names = [node.name for node in spec.read(state).nodes] if everything else nodes or []
    if not names:
        raise typer.BadParameter("name a node, or give --all", param_hint="NODE")
    lines = [line for name in names for line in faults.mend_node(state, name)]
    print("\n".join(lines) if lines else "nothing was broken")


@app.command(name="exec", context_settings={"ignore_unknown_options": True})
def exec_(
    node: NodeArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="Program and arguments.")],
    lab: LabOption = None,
) -> None:
    """Run a command inside a node, entered by its namespaces and not over SSH. Exit code: the command's.

    \b
    Example:
      lockstep lab exec gpu-001 -- nvidia-smi -L
    """
    from lab import base, nodes, spec

    base.need_root("lab exec")
    state = _state(lab)
    spec.read(state).node(node)
    arguments = nodes.enter(state, node, command)
    sys.stdout.flush()
    os.execvp(arguments[0], arguments)  # noqa: S606 - it becomes the command, so that signals and exit code are its own


@app.command()
def power(
    node: NodeArgument,
    action: Annotated[str, typer.Argument(metavar="on|off|state", help="What to do.")],
    lab: LabOption = None,
) -> None:
    """Power of a node, as its BMC would switch it: `off` is hard, `on` waits for sshd, `state` prints on or off.

    \b
    Example:
      lockstep lab power gpu-001 off
    """
    from lab import base, labs, nodes, spec

    base.need_root("lab power")
    state = _state(lab)
    spec.read(state).node(node)
    if action == "state":
        print("on" if nodes.alive(state, node) else "off")
    elif action == "on":
        labs.power_on(state, node)
    elif action == "off":
        nodes.power_off(state, node)
    else:
        raise typer.BadParameter(f"{action!r} is not one of on, off, state", param_hint="ACTION")


@app.command()
def reimage(node: NodeArgument, lab: LabOption = None) -> None:
    """Put a new machine with a fresh disk into the node's slot and boot it; prints its SSH host key.

    \b
    Example:
      lockstep lab reimage gpu-001
    """
    from lab import base, labs

    base.need_root("lab reimage")
    print(labs.reimage(_state(lab), node))
