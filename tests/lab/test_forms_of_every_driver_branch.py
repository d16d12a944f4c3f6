"""What the stand-in nvidia-smi of each driver branch prints, against real samples where there are any, and parsed.

Runs the package's own files, without a node: only the paths of the machine and the form are others.
"""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bringup.parsers import smi
from bringup.parsers.records import Record
from lab import hardware, packages, smi_forms, spec

REAL = {
    "535.309.01": "a100-sxm4-v12.xml",
    "570.86.15": "q-x_h100x8_570.86.15.xml",
    "570.148.08": "hardware/qx-a100.xml",
    "580.105.08": "hardware/qx-gb200.xml",
    "595.71.05": "hardware/qx-l40s.xml",
}
"""Driver → a real XML of its branch."""
ABSENT_THERE = {"535.309.01": {"remapped_rows"}}
"""That card was in MIG mode, where the group is empty."""


def _smi(folder: Path, driver: str, **options: str) -> str:
    if shutil.which("awk") is None:
        pytest.skip("awk is missing")
    machine = folder / "machine"
    gpus = (("0000:18:00.0", "gpu0"), ("0000:2a:00.0", "gpu1"))
    node = spec.LabNode("n1", "127.90.0.1", 2222, "u1", "u1", "NVIDIA H100 80GB HBM3", gpus, "node")
    hardware.install(node, "test", machine)
    package = next(
        one for one in packages.all_packages() if one.name == "nvidia-driver-cuda" and one.version == f"{driver}-1"
    )
    form = folder / "form"
    form.write_bytes(package.files["/usr/lib/nvidia/smi.form"])
    program = package.files["/usr/lib/nvidia/smi.awk"].decode().replace("/usr/lib/nvidia/smi.form", str(form))
    values = {"smi": driver, "kmd": driver, "nvml": driver, "cuda": packages.DRIVERS[driver], "machine": str(machine)}
    values |= {"mode": "q", "format": "", "fields": "", "only": "", "header": "0", "units": "1"} | options
    words = [word for name, value in values.items() for word in ("-v", f"{name}={value}")]
    (folder / "smi.awk").write_text(program)
    done = subprocess.run(
        ["awk", *words, "-f", str(folder / "smi.awk")], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _paths(root: ElementTree.Element, above: str = "") -> set[str]:
    here = f"{above}/{root.tag}"
    return {here}.union(*(_paths(child, here) for child in root))


def _head(text: str) -> tuple[str, str]:
    return next(line for line in text.splitlines() if "DOCTYPE" in line).strip(), text


@pytest.mark.parametrize("driver", REAL)
def test_the_xml_has_only_elements_of_a_real_one_of_its_branch_and_its_dtd(
    tmp_path: Path, samples: Path, driver: str
) -> None:
    ours = _smi(tmp_path, driver, format="xml")
    real = (samples / "facts/nvidia-smi" / REAL[driver]).read_text()
    assert _head(ours)[0] == _head(real)[0]
    other = _paths(ElementTree.fromstring(real))
    more = {path for path in _paths(ElementTree.fromstring(ours)) - other if "process_info" not in path}
    assert {path for path in more if path.split("/")[3] not in ABSENT_THERE.get(driver, ())} == set()
    # The other way round for what a fleet is read by: nothing of it is left out.
    for tag in ("fabric", "platformInfo", "gpu_power_readings", "gpu_recovery_action", "gpu_module_id", "c2c_mode"):
        there, here = (
            any(path.startswith(f"/nvidia_smi_log/gpu/{tag}") for path in paths)
            for paths in (other, _paths(ElementTree.fromstring(ours)))
        )
        assert here is there, tag


@pytest.mark.parametrize("driver", packages.DRIVERS)
def test_the_answer_of_every_branch_is_read_to_the_same_facts(tmp_path: Path, driver: str) -> None:
    record = Record("smi", 0, 10, _smi(tmp_path, driver, format="xml").encode(), b"")
    found = smi.smi(record)
    assert isinstance(found, smi.Smi), found
    assert (found.driver, found.cuda) == (driver, packages.DRIVERS[driver])
    assert [card.vbios for card in found.gpus] == ["96.00.A5.00.01"] * 2


@pytest.mark.parametrize("driver", packages.DRIVERS)
def test_the_text_form_of_every_branch_shows_the_labels_of_its_xml(tmp_path: Path, driver: str) -> None:
    labels = {line.split(":")[0].strip() for line in _smi(tmp_path, driver).splitlines()}
    recent = smi_forms.key(driver) >= (580,)
    assert ("GPU PDI" in labels) is recent
    assert ("ClusterUUID" in labels) is (smi_forms.key(driver) >= (550,))
    assert ("KMD Version" in labels) is (smi_forms.key(driver) >= (610,))


def test_a_query_for_a_field_that_the_branch_does_not_know_is_refused(tmp_path: Path) -> None:
    assert _smi(tmp_path, "550.163.01", mode="csv", format="csv", fields="fabric.clusterUuid").count("\n") == 2
    with pytest.raises(AssertionError, match="is not a valid field to query"):
        _smi(tmp_path, "535.309.01", mode="csv", format="csv", fields="fabric.clusterUuid")


def test_every_branch_in_the_repository_says_which_of_its_forms_are_inferred() -> None:
    assert {driver.partition(".")[0] for driver in packages.DRIVERS} == set(smi_forms.INFERRED)
    assert smi_forms.INFERRED["550"] == ("xml", "text")
    assert smi_forms.INFERRED["595"] == ()
