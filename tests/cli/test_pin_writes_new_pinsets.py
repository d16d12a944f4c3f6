"""New files of the catalogue: written whole, once, kept against a rule only with a reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from lockstep.cli import main
from tests.bringup import answers

LIST = {
    "nvidia": {"x": {}},
    "cuda": {"x": {}},
    "rocm": {"x": {"version": "7.0.3"}},
    "rccl": {"x": {"version": "2.22.3"}},
    "cmake": {"x": {"version": "4.0"}},
}
WORDS = ["pin", "import", "list.json", "--name", "new", "--sku", "mi300x", "--select", "x", "--select", "amd_mi300x"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the probe said on a good node, and on one of which a GPU is gone."""
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "gpu-001.jsonl").write_bytes(answers.answer("SN1"))
    (folder / "gpu-002.jsonl").write_bytes(answers.answer("SN2", vbios2=None))
    return folder


@pytest.fixture
def catalog(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The catalogue's folder of a small checkout, which is stood in."""
    for name in ("Pulumi.yaml", "pyproject.toml"):
        shutil.copy(checkout / name, tmp_path)
    for folder in ("inventory/fleets", "pinsets/catalog"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "list.json").write_text(json.dumps(LIST))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_ROOT", str(tmp_path))
    return tmp_path / "pinsets" / "catalog"


def test_a_set_that_breaks_a_rule_is_written_only_with_the_reason_why_it_is_kept(
    catalog: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*WORDS, "--write"]) == 2
    assert list(catalog.iterdir()) == []
    assert main.run([*WORDS, "--write", "--waive", "A2=so"]) == 2, "no reason"
    assert list(catalog.iterdir()) == []
    assert main.run([*WORDS, "--write", "--waive", "A2=published so by the vendor"]) == 0
    found = yaml.safe_load((catalog / "new.yaml").read_text())
    assert found["rules"] == {"A2": "published so by the vendor"}
    assert found["pins"]["rccl"] == {
        "version": "2.22.3",
        "layers": ["library"],
        "scope": "job",
        "source": "list.json: rccl.x",
    }
    assert "cmake: the registry has no such component" in (catalog / "new.yaml").read_text()
    capsys.readouterr()
    assert main.run(["pin", "lint"]) == 0
    assert "new breaks A2, kept: published so by the vendor" in capsys.readouterr().out
    assert main.run(["pin", "query", "new", "rocm", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["version"], said["file"], said["chain"]) == ("7.0.3", "pinsets/catalog/new.yaml", ["new"])
    assert main.run([*WORDS, "--write", "--waive", "A2=published so by the vendor"]) == 2, "never edited after use"


def test_a_golden_node_becomes_a_set_that_it_is_in_step_with(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = [
        ["driver@running", "ssh:/sys/module/nvidia/version", "580.105.08"],
        ["driver@ondisk", "ssh:modinfo -F version nvidia", "580.105.08"],
        ["dcgm@package", "ssh:dpkg-query", "4.5.2", "1:4.5.2-1"],
        ["imex@package", "ssh:dpkg-query"],
    ]
    lines: list[dict[str, object]] = [
        {"snapshot": 1, "taken_at": 1767222000.0},
        {"set": 0, "facts": facts},
        {"node": "gpu-001", "at": 1767222000.0, "set": 0},
    ]
    (tmp_path / "reading.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    words = ["pin", "from-node", "gpu-001", "--sku", "lab-gb200", "--name", "golden", "--facts", "reading.jsonl"]
    assert main.run(words) == 0
    printed = capsys.readouterr().out
    assert main.run([*words, "--write"]) == 0
    assert (catalog / "golden.yaml").read_text() == printed
    assert main.run([*words, "--write"]) == 2
    capsys.readouterr()
    assert main.run(["pin", "show", "golden", "--format", "json"]) == 0
    pins = {pin["component"]: pin for pin in json.loads(capsys.readouterr().out)["pins"]}
    assert pins["driver"]["layers"] == ["running", "ondisk"]
    assert pins["dcgm"]["version"] == "4.5.2"
    assert "imex: absent on the node" in printed


def test_a_node_of_a_folder_of_outputs_becomes_a_set_with_the_slots_of_its_machine_type(
    outputs: Path, catalog: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--sku", answers.SKU, "--name", "golden", "--facts", str(outputs)]
    assert main.run(["pin", "from-node", "gpu-001", *words, "--write"]) == 0
    capsys.readouterr()
    assert main.run(["audit", "--from-dir", str(outputs), "--pinset", "golden", "--format", "json"]) == 1
    (pool,) = json.loads(capsys.readouterr().out)["pools"]
    assert {node["name"]: node["verdict"] for node in pool["nodes"]} == {"gpu-001": "admit", "gpu-002": "drifted"}
    assert main.run(["pin", "from-node", "gpu-002", *words]) == 2
    assert "absent at firmware.gpu[gpu2]@running" in capsys.readouterr().err


FIRMWARE = """\
fleet: trays
ssh: {user: admin}
pools:
  - name: trays
    sku: gb200-nvl72-switch
    os: debian-12-arm64
    pinset: switch
    nodes:
      sw1: {address: 10.0.0.1, domain: r1}
"""


def test_a_set_of_firmware_alone_is_locked_without_any_repository(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (catalog / "switch.yaml").write_text(
        "pinset: switch\nsku: [gb200-nvl72-switch]\npins:\n  firmware.switch.bmc: {version: 88.0002.1301}\n"
    )
    (tmp_path / "inventory" / "fleets" / "trays.yaml").write_text(FIRMWARE)
    assert main.run(["pin", "lock", "trays"]) == 0
    assert main.run(["check", "trays"]) == 0
    locked = json.loads((tmp_path / "pinsets" / "locks" / "switch@debian-12-arm64.json").read_text())
    assert (locked["packages"], [pin["component"] for pin in locked["pins"]]) == ([], ["firmware.switch.bmc"])
    (catalog / "switch.yaml").write_text(
        (catalog / "switch.yaml").read_text() + "  nccl: {version: 2.28.9, layers: [package]}\n"
    )
    capsys.readouterr()
    assert main.run(["pin", "lock", "trays"]) == 2
    assert "the fleet names no apt repository" in capsys.readouterr().err
