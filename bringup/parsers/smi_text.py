"""Text forms of nvidia-smi: ``-q``, ``--version``, ``-L``, ``--query-gpu`` as CSV, ``topo -m``, ``nvlink -info``."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence

from bringup.parsers import smi, texts
from bringup.parsers.records import Record
from bringup.parsers.smi import Finder, Smi
from pinsets.facts import Unreadable

__all__ = ["conf_compute", "listed", "nvlink_firmware", "nvlink_links", "query", "table", "topology", "versions"]

_LABELS: Mapping[str, str] = {
    "kmd_version": "KMD Version",
    "driver_version": "Driver Version",
    "cuda_umd_version": "CUDA UMD Version",
    "cuda_version": "CUDA Version",
    "product_name": "Product Name",
    "product_architecture": "Product Architecture",
    "addressing_mode": "Addressing Mode",
    "serial": "Serial Number",
    "uuid": "GPU UUID",
    "vbios_version": "VBIOS Version",
    "gpu_part_number": "GPU Part Number",
    "platformInfo/chassis_serial_number": "Platform Info/Chassis Serial Number",
    "platformInfo/tray_index": "Platform Info/Tray Index",
    "platformInfo/module_id": "Platform Info/Module Id",
    "inforom_version/img_version": "Inforom Version/Image Version",
    "gsp_firmware_version": "GSP Firmware Version",
    "gpu_recovery_action": "GPU Recovery Action",
    "c2c_mode": "GPU C2C Mode",
    "persistence_mode": "Persistence Mode",
    "mig_mode/current_mig": "MIG Mode/Current",
    "mig_mode/pending_mig": "MIG Mode/Pending",
    "ecc_mode/current_ecc": "ECC Mode/Current",
    "ecc_mode/pending_ecc": "ECC Mode/Pending",
    "gpu_power_readings/current_power_limit": "GPU Power Readings/Current Power Limit",
    "power_readings/enforced_power_limit": "Power Readings/Enforced Power Limit",
    "applications_clocks/graphics_clock": "Applications Clocks/Graphics",
    "applications_clocks/mem_clock": "Applications Clocks/Memory",
    "fabric/state": "Fabric/State",
    "fabric/status": "Fabric/Status",
    "fabric/cliqueId": "Fabric/CliqueId",
    "fabric/clusterUuid": "Fabric/ClusterUUID",
    "fabric/health/summary": "Fabric//Summary",
    "fabric/health/partition_assigned": "Fabric//Partition Assigned",
}
"""Element of the XML → label of the text form; one slash per level."""


_BLOCK = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f:.]{7})\s*")


def query(record: Record | Unreadable) -> Smi | Unreadable:
    """``nvidia-smi -q``: the lines below each ``GPU ADDRESS``, to three levels of indentation (4, 8, 12 blanks)."""
    if isinstance(record, Unreadable):
        return record
    if record.not_found:
        return Unreadable("nvidia-smi is not installed")
    if "NVSMI LOG" not in record.text:
        return smi.failure(record)
    top: dict[str, str] = {}
    blocks: list[tuple[str, dict[str, str]]] = []
    current, section = top, ""
    for line in record.text.splitlines():
        begun = _BLOCK.fullmatch(line)
        if begun is not None:
            current = {}
            blocks.append((begun[1], current))
            continue
        depth = len(line) - len(line.lstrip(" "))
        key, colon, value = line.partition(" : ")
        name = key.strip()
        if not colon:
            section = name if depth == 4 else section
        elif depth in _LEVELS:
            current.setdefault(_LEVELS[depth].format(section, name), value.strip())
    found = [smi.gpu_by(place, _by_label(values), smi.says_lost(values.values())) for place, values in blocks]
    return smi.whole(_by_label(top), found)


_LEVELS: Mapping[int, str] = {0: "{1}", 4: "{1}", 8: "{0}/{1}", 12: "{0}//{1}"}


def _by_label(values: Mapping[str, str]) -> Finder:
    return lambda path: values.get(_LABELS.get(path, ""), "")


def versions(record: Record | Unreadable) -> Mapping[str, str] | Unreadable:
    """``nvidia-smi --version`` → ``driver``, ``nvml``, ``cuda``, ``smi``; a value that begins "Deprecated" is absent.

    Keys are matched without regard to case: 610 prints "CUDA version" where earlier branches print "CUDA Version".
    """
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    found: dict[str, str] = {}
    names = {
        "kmd version": "driver",
        "driver version": "driver",
        "cuda umd version": "cuda",
        "cuda version": "cuda",
        "nvml version": "nvml",
        "nvidia-smi version": "smi",
    }
    for key, value in texts.key_values(answer.text):
        name = names.get(" ".join(key.lower().split()))
        if name is not None and texts.VERSION.fullmatch(value):
            found[name] = value
    return found or Unreadable(answer.complaint)


def listed(record: Record | Unreadable) -> Sequence[Mapping[str, str]] | Unreadable:
    """``nvidia-smi -L`` → ``index``, ``product``, ``uuid`` and ``mig`` (number of MIG devices) of each GPU."""
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    found: list[dict[str, str]] = []
    for line in answer.text.splitlines():
        match = re.fullmatch(r"GPU ([0-9]{1,4}): (.{1,100}) \(UUID: (GPU-[0-9a-f-]{36})\)\s*", line)
        if match is not None:
            found.append({"index": match[1], "product": match[2], "uuid": match[3], "mig": "0"})
        elif found and re.match(r"\s+MIG .{1,60}\(UUID: MIG-", line):
            found[-1]["mig"] = str(int(found[-1]["mig"]) + 1)
    return found if found or "No devices" in answer.text else Unreadable(answer.complaint)


def table(record: Record | Unreadable) -> Sequence[Mapping[str, str]] | Unreadable:
    """``nvidia-smi --query-gpu=… --format=csv``: a row per GPU, column → value; those without a value are left out.

    Units in the heads are cut off (``fan.speed [%]`` → ``fan.speed``). A row of another length is not trusted.
    """
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    try:
        rows = list(csv.reader(answer.text.replace("\0", "").splitlines(), skipinitialspace=True))
    except csv.Error as error:
        return Unreadable(f"not CSV: {error}")
    if answer.rc != 0 or len(rows) < 2 or len(rows[0]) < 2:
        return Unreadable(answer.complaint)
    head = [name.partition(" [")[0].strip() for name in rows[0]]
    found = []
    for row in rows[1:]:
        if len(row) != len(head):
            return Unreadable(f"a row of {len(row)} fields under a head of {len(head)}")
        values = {name: texts.known(value) for name, value in zip(head, row, strict=True)}
        found.append({name: value for name, value in values.items() if value is not None})
    return found


def topology(record: Record | Unreadable) -> Mapping[tuple[str, str], str] | Unreadable:
    """``nvidia-smi topo -m`` → (device, device) → connection (``NV18``, ``PIX`` …); NICs by their legend's name."""
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    names = dict(re.findall(r"^\s*(NIC[0-9]{1,3}): (\S{1,60})\s*$", answer.text, re.MULTILINE))
    lines = [re.sub(r"\x1b\[[0-9;]{0,20}m", "", line) for line in answer.text.splitlines()]
    heads: list[str] = []
    found: dict[tuple[str, str], str] = {}
    for line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if not heads:
            heads = [cell for cell in cells[1:] if re.fullmatch(r"(GPU|NIC)[0-9]{1,3}|mlx[0-9a-z_]{1,30}", cell)]
        elif cells[0] in heads and len(cells) > len(heads):
            for other, value in zip(heads, cells[1 : len(heads) + 1], strict=True):
                if value and value != "X":
                    found[names.get(cells[0], cells[0]), names.get(other, other)] = value
    return found if heads else Unreadable(answer.complaint)


def nvlink_firmware(record: Record | Unreadable) -> Mapping[int, Mapping[str, str]] | Unreadable:
    """``nvidia-smi nvlink -info`` (Blackwell on) → GPU index → part (``MSE``, ``NETIR`` …) → ``14.4.0``.

    The tool separates the numbers by colons; here they are dotted, as every other firmware.
    """
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    found: dict[int, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in answer.text.splitlines():
        begun = re.match(r"GPU ([0-9]{1,4}): ", line)
        if begun is not None:
            current = found.setdefault(int(begun[1]), {})
            continue
        match = re.fullmatch(r"\s+([A-Z][A-Z ]{1,30}): ([0-9]{1,9}(?::[0-9]{1,9}){1,5})\s*", line)
        if match is not None:
            current[match[1]] = match[2].replace(":", ".")
    return found if any(found.values()) else Unreadable(answer.complaint if answer.rc else "no firmware block")


def conf_compute(record: Record | Unreadable) -> texts.Raw:
    """``nvidia-smi conf-compute -f``: ``CC status: OFF`` → ``off``; of the whole node. Form: NVIDIA's documents."""
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    match = re.search(r"CC status\s*:\s*([A-Za-z]{2,20})", answer.text)
    return match[1].lower() if match is not None else Unreadable(answer.complaint)


def nvlink_links(record: Record | Unreadable) -> Mapping[int, Mapping[int, str]] | Unreadable:
    """``nvidia-smi nvlink --status`` → GPU index → link → ``25 GB/s``, or ``inactive``."""
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    found: dict[int, dict[int, str]] = {}
    current: dict[int, str] = {}
    for line in answer.text.splitlines():
        begun = re.match(r"GPU ([0-9]{1,4}): ", line)
        link = re.fullmatch(r"\s+Link ([0-9]{1,3}): (.{1,40}?)\s*", line)
        if begun is not None:
            current = found.setdefault(int(begun[1]), {})
        elif link is not None:
            current[int(link[1])] = "inactive" if "inactive" in link[2] else link[2]
    return found or Unreadable(answer.complaint)
