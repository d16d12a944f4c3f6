"""The command driver: argument lists, outcomes proved by the state command, secrets of nobody."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from bringup import power
from inventory.model import Bmc, Node
from lockstep.base import errors, limits
from lockstep.base.names import DomainName, NodeName, PoolName, Slot

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIF0000000000000000000000000000000000000000000"


def machine(folder: Path, **commands: str) -> Node:
    """A node whose BMC is a file ``state`` in ``folder``."""

    def python(code: str) -> tuple[str, ...]:
        return (
            sys.executable,
            "-c",
            f"import sys, pathlib; p = pathlib.Path({str(folder / 'state')!r}); {code}",
            "{node}",
        )

    (folder / "state").write_text("on")
    wanted = {
        "on": "p.write_text('on')",
        "off": "p.write_text('off')",
        "state": "print(p.read_text())",
        "reimage": f"print('installing', sys.argv[1], file=sys.stderr); print({KEY!r})",
    } | commands
    bmc = Bmc(driver="command", **{name: python(code) for name, code in wanted.items()})
    return Node(NodeName("gpu-1"), PoolName("p"), Slot("s"), "127.0.0.1", DomainName("d"), bmc=bmc)


def test_off_and_on_are_proved(tmp_path: Path) -> None:
    driver = power.driver_of(machine(tmp_path))
    assert driver.state() == "on"
    driver.power_off()
    assert driver.state() == "off"
    assert power.is_off(machine_of_state(tmp_path, "off"))
    driver.power_on()
    assert driver.state() == "on"


def machine_of_state(folder: Path, state: str) -> Node:
    found = machine(folder)
    (folder / "state").write_text(state)
    return found


def test_a_command_that_says_ok_and_does_nothing_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "POWER_OFF_SECONDS", 0.2)
    with pytest.raises(errors.EngineError, match="not proved off"):
        power.driver_of(machine(tmp_path, off="pass")).power_off()


def test_the_nodes_name_reaches_the_command_and_the_keys_come_back(tmp_path: Path) -> None:
    node = machine(tmp_path, reimage=f"p.with_name('who').write_text(sys.argv[1]); print('noise'); print({KEY!r})")
    assert power.driver_of(node).reimage() == (KEY,)
    assert (tmp_path / "who").read_text() == "gpu-1"


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ({"reimage": "print('done')"}, "no host key"),
        ({"state": "print('Chassis Power is maybe')"}, "not on or off"),
        ({"off": "sys.exit('no route to BMC')"}, "no route to BMC"),
    ],
)
def test_what_a_bmc_says_wrong_is_an_error_with_its_words(tmp_path: Path, commands: dict[str, str], said: str) -> None:
    driver = power.driver_of(machine(tmp_path, **commands))
    with pytest.raises(errors.EngineError, match=said):
        {"reimage": driver.reimage, "state": driver.state, "off": driver.power_off}[next(iter(commands))]()


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    bmc = Bmc(driver="command", on=("no-such-program",), off=("no-such-program",), state=("no-such-program",))
    node = dataclasses.replace(machine(tmp_path), bmc=bmc)
    with pytest.raises(errors.EngineError, match="not found"):
        power.driver_of(node).state()
    assert not power.is_off(node), "unknown is not off"
    with pytest.raises(errors.InputError, match="no `reimage`"):
        power.check_complete(node)


def test_redfish_is_refused_until_it_is_supported(tmp_path: Path) -> None:
    node = dataclasses.replace(machine(tmp_path), bmc=Bmc(redfish="https://127.0.0.1:1"))
    with pytest.raises(errors.RefusedError, match="not supported yet"):
        power.driver_of(node)
    with pytest.raises(errors.InputError, match="no `bmc:`"):
        power.driver_of(dataclasses.replace(node, bmc=None))
