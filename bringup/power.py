"""Power and re-imaging of a machine through its BMC. The driver here is `command`: the fleet file's argument lists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from inventory.model import Bmc, Node
from lockstep.base import errors, limits

__all__ = ["PowerDriver", "check_complete", "driver_of", "is_off"]

POLL_SECONDS: Final = 0.5


class PowerDriver(Protocol):
    """What replacement and reboots need of a BMC. Every method raises `errors.EngineError` when the BMC fails."""

    def state(self) -> str:
        """``on`` or ``off``, as the BMC says now."""
        ...

    def power_off(self) -> None:
        """Hard off, proved: returns only when `state` says off."""
        ...

    def power_on(self) -> None:
        """On, proved likewise; says nothing about the operating system."""
        ...

    def reimage(self) -> tuple[str, ...]:
        """A fresh operating system in this slot; the new machine's host keys as ``TYPE BASE64``."""
        ...


def driver_of(node: Node) -> PowerDriver:
    """The node's driver. Raises `errors.InputError` without a `bmc:` entry, `errors.RefusedError` for Redfish."""
    if node.bmc is None:
        raise errors.InputError(
            f"{node.name} has no `bmc:`, so it cannot be powered off and proved off",
            place=node.name,
            hint="give `bmc: {driver: command, on: […], off: […], state: […], reimage: […]}` in the fleet file",
        )
    if node.bmc.driver != "command":
        raise errors.RefusedError(
            f"bmc driver `{node.bmc.driver}` is not supported yet", place=node.name, hint="`command` is"
        )
    return _Command(node, node.bmc)


def check_complete(node: Node) -> None:
    """Raise `errors.InputError` when the BMC cannot re-image: better before the power is off than after."""
    if node.bmc is not None and not node.bmc.reimage:
        raise errors.InputError(
            f"the bmc of {node.name} has no `reimage` command", place=node.name, hint="give `reimage: [PROGRAM, …]`"
        )


class _Command:
    """Runs the argument lists, with ``{node}`` in them replaced by the node's name."""

    def __init__(self, node: Node, bmc: Bmc) -> None:
        self._node = node
        self._bmc = bmc

    def state(self) -> str:
        said = self._run(self._bmc.state, "state", limits.BMC_SECONDS).strip().lower()
        if said not in ("on", "off"):
            raise errors.EngineError(f"its state command said {said[:80]!r}, not on or off", place=self._node.name)
        return said

    def power_off(self) -> None:
        self._run(self._bmc.off, "off", limits.BMC_SECONDS)
        self._prove("off")

    def power_on(self) -> None:
        self._run(self._bmc.on, "on", limits.BMC_SECONDS)
        self._prove("on")

    def reimage(self) -> tuple[str, ...]:
        said = self._run(self._bmc.reimage, "reimage", limits.REIMAGE_SECONDS)
        keys = tuple(line.strip() for line in said.splitlines() if _is_key(line))
        if not keys:
            raise errors.EngineError(
                "the re-image command printed no host key",
                place=self._node.name,
                hint="it must print `TYPE BASE64` on a line of its own; without it the new machine cannot be told",
            )
        return keys

    def _prove(self, wanted: str) -> None:
        deadline = time.monotonic() + limits.POWER_OFF_SECONDS
        while self.state() != wanted:
            if time.monotonic() > deadline:
                raise errors.EngineError(
                    f"not proved {wanted} within {limits.POWER_OFF_SECONDS:.0f} s", place=self._node.name
                )
            time.sleep(POLL_SECONDS)

    def _run(self, command: Sequence[str] | None, what: str, seconds: float) -> str:
        if not command:
            raise errors.InputError(f"its bmc has no `{what}` command", place=self._node.name)
        arguments = [part.replace("{node}", self._node.name) for part in command]
        # The environment goes on as it is, since the command may need it to find what it drives; what is installed
        # beside this Python is found as well, also where the environment was not activated.
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
        arguments[0] = shutil.which(arguments[0], path=path) or arguments[0]
        try:
            done = subprocess.run(
                arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
            )
        except FileNotFoundError as error:
            raise errors.EngineError(f"bmc command not found: {arguments[0]}", place=self._node.name) from error
        except subprocess.TimeoutExpired as error:
            raise errors.EngineError(f"bmc {what} did not end in {seconds:.0f} s", place=self._node.name) from error
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
            raise errors.EngineError(f"bmc {what} ended with {done.returncode}: {said}", place=self._node.name)
        return done.stdout


def _is_key(line: str) -> bool:
    words = line.split()
    return len(words) >= 2 and words[0].startswith(("ssh-", "ecdsa-", "sk-")) and len(words[1]) >= 40


def is_off(node: Node | None) -> bool:
    """Whether the BMC says that the machine is off; False where it cannot tell."""
    if node is None or node.bmc is None or node.bmc.driver != "command":
        return False
    try:
        return driver_of(node).state() == "off"
    except errors.LockstepError:
        return False
