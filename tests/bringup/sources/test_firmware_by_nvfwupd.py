"""What `nvfwupd show_version` printed, beside or in place of the probe's output, in a folder of outputs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup import folders
from bringup.sources import nvfwupd
from inventory import load as inventory_load
from lockstep.base import errors
from lockstep.base.names import NodeName
from lockstep.cli import main
from pinsets import components
from pinsets.facts import ABSENT, Coordinate, NodeFacts, Version
from tests.bringup import answers

TEXT = """\
System Model: P4242
Serial number: 42
Connection Status: Successful

Firmware Devices:
AP Name            Sys Version                Pkg Version                 Up-To-Date
-------            -----------                -----------                 ----------
HGX_FW_GPU_0       97.00.B9.00.69             97.00.B9.00.69              Yes
HGX_FW_GPU_1       97.00.B9.00.69             97.00.B9.00.69              Yes
HGX_FW_GPU_3       97.00.B9.00.6A             97.00.B9.00.69              No
NIC_0              28.98.9122                 N/A                         No
------------------------------------------------------------------------------------
Error Code: 0
"""


def _seen(facts: NodeFacts) -> dict[str, str]:
    return {
        str(at): fact.observation.value if isinstance(fact.observation, Version) else str(fact.observation)
        for at, fact in facts.facts.items()
    }


def test_a_switch_tray_is_read_by_the_names_of_its_sku(samples: Path) -> None:
    output = (samples / "facts/nvfwupd/gb200_switch_show_version.txt").read_bytes()
    facts = nvfwupd.facts(NodeName("sw1"), output, inventory_load.sku("gb200-nvl72-switch"), 1.0)
    seen = _seen(facts)
    assert seen["firmware.switch.bmc@running"] == "88.0002.0930"
    assert seen["firmware.switch.cpld[cpld4]@running"] == "CPLD000390_REV0200"
    assert {at for at in seen if at.startswith("firmware.switch.erot")} == {
        f"firmware.switch.erot[{slot}]@running" for slot in ("tray", "asic1", "asic2", "bmc", "cpu", "fpga")
    }
    assert facts.attributes["nvfwupd.model"] == "N5110_LD"


def test_a_dgx_and_its_eight_gpus_are_counted_from_one(samples: Path) -> None:
    output = (samples / "facts/nvfwupd/dgxh100_show_version.json").read_bytes()
    seen = _seen(nvfwupd.facts(NodeName("d"), output, inventory_load.sku("dgx-h100"), 1.0))
    assert {seen[f"firmware.gpu[gpu{slot}]@running"] for slot in range(8)} == {"96.00.BC.00.01"}
    assert seen["firmware.nvswitch[nvswitch3]@running"] == "96.10.69.00.01"


def test_a_gpu_that_is_not_listed_is_absent_and_a_nic_that_could_be_any_is_left_out() -> None:
    seen = _seen(nvfwupd.facts(NodeName("n"), TEXT.encode(), answers.sku(), 1.0))
    assert seen == {
        "firmware.gpu[gpu0]@running": "97.00.B9.00.69",
        "firmware.gpu[gpu1]@running": "97.00.B9.00.69",
        "firmware.gpu[gpu2]@running": str(ABSENT),
        "firmware.gpu[gpu3]@running": "97.00.B9.00.6A",
    }


def test_it_stands_beside_the_probes_output_and_their_contradiction_is_kept(tmp_path: Path) -> None:
    (tmp_path / "gpu-1.jsonl").write_bytes(answers.answer("SN1"))
    (tmp_path / "gpu-1.nvfwupd.txt").write_text(TEXT)
    (tmp_path / "gpu-2.nvfwupd").write_text("Connection Status: Failed\n")
    skus = dict.fromkeys((NodeName("gpu-1"), NodeName("gpu-2")), answers.sku())
    read = folders.read(tmp_path, components.load(), skus).nodes
    assert set(read) == {"gpu-1", "gpu-2"}
    one = read[NodeName("gpu-1")]
    assert isinstance(one.facts[Coordinate.parse("nccl@library")].observation, Version)
    assert {str(fact.coordinate) for fact in one.others} == {
        "firmware.gpu[gpu2]@running",
        "firmware.gpu[gpu3]@running",
    }
    assert "nvfwupd: " in str(read[NodeName("gpu-2")].unreachable)


def test_two_lists_of_one_node_are_refused(tmp_path: Path) -> None:
    for name in ("n.nvfwupd", "n.nvfwupd.txt"):
        (tmp_path / name).write_text(TEXT)
    with pytest.raises(errors.InputError) as caught:
        folders.read(tmp_path, components.load())
    assert "there are two files of node n" in caught.value.diagnostics()


def test_the_audit_of_switch_trays_names_what_a_published_set_does_not_have(
    samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("sw1", "sw2"):
        shutil.copy(samples / "facts/nvfwupd/gb200_switch_show_version.txt", tmp_path / f"{name}.nvfwupd")
    words = ["audit", "--from-dir", str(tmp_path), "--pinset", "dgx-gb200-sw1.3-switch", "--format", "json"]
    assert main.run(words) == 1
    (pool,) = json.loads(capsys.readouterr().out)["pools"]
    found = {(one["coordinate"], one["expected"], one["observed"]) for one in pool["findings"]}
    assert ("firmware.switch.bmc@running", "88.0002.1301", "88.0002.0930") in found
    assert not [one for one in pool["findings"] if one["coordinate"].startswith("nvlink.domain")]


@given(output=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_whatever_stands_in_such_a_file_is_taken(output: bytes) -> None:
    for tail in (b"", TEXT.encode()):
        for sku in (None, answers.sku()):
            facts = nvfwupd.facts(NodeName("n"), output + tail, sku, 1.0)
            assert facts.facts or facts.unreachable
