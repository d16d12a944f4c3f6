"""Firmware inventories → facts, case by case; whatever a BMC sends never raises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from bringup.redfish import bmc, inventory, source
from inventory.model import Node, Sku
from lockstep.base.names import DomainName, NodeName, PoolName, Slot
from pinsets import components

CASES = sorted((Path(__file__).parents[2] / "data" / "redfish").glob("*.yaml"))
SKU = Sku.model_validate(
    {
        "sku": "two-gpus",
        "accelerator": "NVIDIA GH200",
        "vendor": "nvidia",
        "gpus": {"0000:01:00.0": "gpu0", "0000:02:00.0": "gpu1"},
        "instances": {
            "fpga": {"HGX_FW_FPGA_0": "fpga0"},
            "erot": {"FW_ERoT_BMC_0": "bmc"},
            "cpu": {"HGX_FW_CPU_0": "cpu0"},
        },
    }
)


def node(name: str = "n", **more: Any) -> Node:
    """A node with what a reading of its BMC needs."""
    return Node(
        name=NodeName(name),
        pool=PoolName("p"),
        slot=Slot(name),
        address="127.0.0.1",
        domain=DomainName("d"),
        **more,
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_facts_of(path: Path) -> None:
    case = YAML(typ="safe").load(path.read_text())
    answer = bmc.Answer(tuple(case["members"]), {}, case.get("system", {}), case.get("bios", {}))
    facts = source.facts_of(source.Asked(node(), SKU), answer, 1.0, components.load())
    assert facts.unreachable is None
    assert {str(at): str(fact.observation) for at, fact in facts.facts.items()} == case["facts"]
    assert facts.serial == case.get("serial")


@pytest.mark.parametrize(("listed", "placed"), [((0,), ()), ((1, 2), ()), ((0, 1, 2), ("nic0", "nic1", "nic2"))])
def test_nics_are_placed_only_where_all_of_them_are_listed(listed: tuple[int, ...], placed: tuple[str, ...]) -> None:
    """A GB200's BMC lists NIC_0 of its four: by its number it would be another card's firmware, and three absent."""
    nics = {f"0000:0{number}:00.0": f"nic{number}" for number in range(3)}
    sku = SKU.model_copy(update={"nics": nics})
    members = [{"Id": f"NIC_{number}", "Version": "28.98.9122"} for number in listed]
    members.append({"Id": "HGX_FW_FPGA_0", "Version": "1.60"})
    answer = bmc.Answer(tuple(members), {}, {}, {})
    facts = source.facts_of(source.Asked(node(), sku), answer, 1.0, components.load()).facts
    assert tuple(str(at.instance) for at in facts if at.component == "firmware.nic") == placed


def test_there_are_cases() -> None:
    assert len(CASES) >= 7


def test_where_members_could_not_be_read_nothing_is_absent() -> None:
    answer = bmc.Answer(({"Id": "HGX_FW_GPU_0", "Version": "96.00.A1.00.01"},), {"HGX_FW_GPU_1": "500"})
    facts = source.facts_of(source.Asked(node(), SKU), answer, 1.0, components.load())
    said = {str(at): str(fact.observation) for at, fact in facts.facts.items()}
    assert said["firmware.gpu[gpu1]@running"] == "unreadable: the BMC did not give every member"


def test_a_bmc_without_any_firmware_we_know_is_no_answer() -> None:
    facts = source.facts_of(source.Asked(node(), SKU), bmc.Answer(), 1.0, components.load())
    assert facts.unreachable == "BMC answer: it lists no firmware we know"


def test_without_a_sku_parts_go_by_their_own_names() -> None:
    found = inventory.firmware([{"Id": "HGX_FW_NVSwitch_2", "Version": "96.10.69.00.01"}], None)
    assert [(item.component, item.instance) for item in found] == [("firmware.nvswitch", "HGX_FW_NVSwitch_2")]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.sampled_from(["HGX_FW_GPU_0", "Enabled"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
member = st.dictionaries(st.sampled_from(["Id", "Version", "Status", "@odata.id"]), anything)


@given(
    st.lists(member, max_size=4), st.dictionaries(st.sampled_from(["BiosVersion", "SerialNumber"]), anything), anything
)
def test_whatever_a_bmc_sends_is_taken(members: list[Any], system: dict[str, Any], attributes: Any) -> None:
    answer = bmc.Answer(tuple(members), {}, system, {"Attributes": attributes})
    source.facts_of(source.Asked(node(), SKU), answer, 1.0, components.load())
