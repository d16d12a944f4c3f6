"""The machine under the operating system: processor, memory nodes, boot arguments, taint, disks, kernel log, settings.

Most of it comes from the `host` record, a list of files; disks from ``df -Pk``, the log from ``dmesg``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from bringup.parsers import host, texts
from bringup.parsers.host import Sections
from bringup.parsers.records import Record
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Unreadable

__all__ = [
    "acs",
    "api_mismatch",
    "cpu",
    "dgx_release",
    "disks",
    "dmi_table",
    "environment",
    "iommu",
    "kernel_arguments",
    "nps",
    "page_size",
    "reboot_required",
    "secure_boot",
    "symbol_mismatch",
    "taint_letters",
    "text_of",
]

_TAINTS: Final = "PFSRMBUDAWCIOELKXTN"
"""Letters of /proc/sys/kernel/tainted from bit 0 on (Documentation/admin-guide/tainted-kernels.rst)."""
_VENDORS: Final = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "0x41": "arm", "0x4e": "arm", "0xc0": "ampere"}
"""x86 names and Arm implementer codes; 0x41 is Arm's own cores, which NVIDIA's Grace uses, 0x4e NVIDIA's."""
_OWN: Final = re.compile(
    r"(BOOT_IMAGE|root|initrd|resume|ip|rd\.lvm\.lv|rd\.luks\.uuid|rd\.md\.uuid|ostree|cryptdevice|BOOTIF|hostname"
    r"|nfsroot|systemd\.machine_id|ds|boot|crashkernel)(=.*)?"
)
"""Arguments that name this one machine's disks and network, not a setting."""
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VARIABLE = re.compile(r"(?:export\s+)?((?:NCCL|UCX|FI|RCCL|HSA)_[A-Z0-9_]{1,80})\s*=\s*(.*)")
ENVIRONMENT_FILES: Final = ("env /etc/nccl.conf", "env /etc/environment", "env /etc/profile.d")
"""Sections of the `host` record. What the environment says goes over nccl.conf."""


def text_of(files: Sections, name: str) -> str | None:
    """Text of a file, trimmed; None when it is not there or not readable."""
    value = files.get(name)
    return value.strip().strip("\0") if isinstance(value, str) else None


def cpu(files: Sections) -> Mapping[str, str]:
    """``vendor`` and ``model`` from the first entry of /proc/cpuinfo, NUMA ``nodes`` with cores and ``sockets``."""
    found: dict[str, str] = {}
    entries = dict(texts.key_values(text_of(files, "cpu") or ""))
    word = entries.get("vendor_id") or entries.get("CPU implementer")
    if word:
        found["vendor"] = _VENDORS.get(word, word.lower()[:60])
    if entries.get("model name"):
        found["model"] = " ".join(entries["model name"].split())[:100]
    elif entries.get("CPU part"):
        found["model"] = entries["CPU part"][:60]
    numbers = (text_of(files, "numa") or "").split()
    if len(numbers) == 2 and all(re.fullmatch("[1-9][0-9]{0,5}", number) for number in numbers):
        found["nodes"], found["sockets"] = numbers
    return found


def nps(processor: Mapping[str, str]) -> Raw | None:
    """NUMA nodes per socket as AMD's firmware calls them (``NPS4``); None without that setting, or without NUMA."""
    if processor.get("vendor") != "amd" or "nodes" not in processor:
        return None
    nodes, sockets = int(processor["nodes"]), int(processor["sockets"])
    return f"NPS{nodes // sockets}" if nodes % sockets == 0 else Unreadable(f"{nodes} nodes on {sockets} sockets")


def iommu(files: Sections) -> Raw:
    """Whether the kernel has an IOMMU at work (``on``, ``off``)."""
    return text_of(files, "iommu") or host.file_of(files, "iommu")


def taint_letters(files: Sections) -> tuple[str, str] | None:
    """(mask as decimal, letters) of /proc/sys/kernel/tainted; letters empty for a clean kernel."""
    text = text_of(files, "/proc/sys/kernel/tainted")
    if text is None or not re.fullmatch("[0-9]{1,19}", text):
        return None
    mask = int(text)
    return text, "".join(letter for bit, letter in enumerate(_TAINTS) if mask >> bit & 1)


def secure_boot(files: Sections) -> str | None:
    """``on`` or ``off`` from the UEFI variable (four bytes of attributes, then 0 or 1); None without one."""
    for name, value in files.items():
        if name.startswith("/sys/firmware/efi/efivars/SecureBoot-") and isinstance(value, str):
            # A shell drops the zero bytes: what is left are the attributes (0x06 or 0x16) and, if on, 0x01.
            return "on" if value.rstrip("\n").endswith("\x01") else "off"
    return None


def reboot_required(files: Sections) -> str | None:
    """Debian's flag file: ``yes`` or ``no``; None where the family has none or it was not asked for."""
    value = files.get("/run/reboot-required")
    if value is None:
        return None
    return "no" if isinstance(value, Absent) else "yes"


def page_size(files: Sections) -> Raw:
    """Bytes of a base page, from ``KernelPageSize:`` of /proc/self/smaps or from getconf."""
    text = text_of(files, "page")
    if text is None:
        return host.file_of(files, "page")
    match = re.fullmatch(r"KernelPageSize:\s*([0-9]{1,7}) kB", text)
    if match is not None:
        return str(int(match[1]) * 1024)
    return text if re.fullmatch("[0-9]{3,9}", text) else Unreadable("no page size in /proc/self/smaps")


def kernel_arguments(line: str) -> Raw:
    """Arguments without those that name this machine's own disks and network, in their order (a later one wins)."""
    kept = [word for word in line.split() if not _OWN.fullmatch(word) and not _UUID.search(word)]
    return " ".join(kept) or "none"


def dgx_release(files: Sections) -> Raw:
    """Version of DGX OS: the newest OTA level in /etc/dgx-release, else the one it was shipped with."""
    value = host.file_of(files, "/etc/dgx-release")
    if not isinstance(value, str):
        return value
    entries = [(key, text.strip("\"'")) for key, text in texts.key_values(value, "=")]
    for wanted in ("DGX_OTA_VERSION", "DGX_SWBUILD_VERSION"):
        levels = [text for key, text in entries if key == wanted and re.fullmatch("[0-9][0-9A-Za-z.-]{0,40}", text)]
        if levels:
            return levels[-1]
    return Unreadable("/etc/dgx-release names no version")


def dmi_table(text: str) -> Mapping[str, str]:
    """``dmidecode`` in full: manufacturer, product and serial of the system, ``bios``; empty values left out."""
    found: dict[str, str] = {}
    section = ""
    names = {
        ("System Information", "Manufacturer"): "manufacturer",
        ("System Information", "Product Name"): "product",
        ("System Information", "Serial Number"): "serial",
        ("BIOS Information", "Version"): "bios",
        ("Base Board Information", "Serial Number"): "board-serial",
    }
    for line in text.splitlines():
        if line and not line[0].isspace():
            section = line.strip()
            continue
        key, colon, value = line.strip().partition(":")
        name = names.get((section, key))
        if colon and name and value.strip() and value.strip() != "Not Specified":
            found.setdefault(name, value.strip()[:100])
    return found


def disks(record: Record | Unreadable) -> Mapping[str, Mapping[str, int]] | Unreadable:
    """``df -Pk FOLDERS``, behind ``@inodes`` ``df -Pi`` of the same → mount point → ``used``, ``inodes`` in percent.

    Each file system once; without inodes where the file system counts none.
    """
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    found: dict[str, dict[str, int]] = {}
    word = "used"
    for line in answer.text.splitlines():
        word = "inodes" if line == "@inodes" else word
        match = re.fullmatch(r".+\s[0-9]+\s+[0-9]+\s+-?[0-9]+\s+([0-9]{1,3})%\s+(/.{0,200})", line)
        if match is not None:
            found.setdefault(match[2].strip(), {})[word] = int(match[1])
    return found or Unreadable(answer.complaint if answer.rc else "df listed no file system")


def environment(files: Sections) -> Mapping[str, str]:
    """NCCL_, UCX_, FI_, RCCL_ and HSA_ variables that every login and job of the node is given; later files win."""
    found: dict[str, str] = {}
    for name, value in _in_order(files):
        for line in value.splitlines():
            match = _VARIABLE.fullmatch(line.strip())
            if match is None and name.endswith("nccl.conf") and (pair := re.fullmatch(r"(\w+)=(.*)", line.strip())):
                match = pair if pair[1].startswith("NCCL_") else None
            if match is not None:
                found[match[1]] = match[2].strip().strip("\"'")[:200]
    return found


def _in_order(files: Sections) -> Iterator[tuple[str, str]]:
    for prefix in ENVIRONMENT_FILES:
        for name in sorted(files):
            value = files[name]
            if name.startswith(prefix) and isinstance(value, str):
                yield name, value


def acs(record: Record | Unreadable) -> Raw:
    """``off`` where no bridge redirects peers' requests upstream, else ``on:N`` of the bridges that do.

    ``lspci -vvv``: the line of each bridge, then ``ACSCtl: SrcValid+ TransBlk- ReqRedir+ …`` of those that have it.
    """
    answer = texts.answered(record)
    if isinstance(answer, Unreadable):
        return answer
    controls = [line for line in answer.text.splitlines() if "ACSCtl:" in line]
    if not controls:
        return ABSENT if "bridge" in answer.text else Unreadable(answer.complaint)
    on = sum(1 for line in controls if re.search(r"(SrcValid|ReqRedir|CmpltRedir|UpstreamFwd)\+", line))
    return f"on:{on}" if on else "off"


def api_mismatch(log: str) -> tuple[str, str] | None:
    """(client's, loaded module's version) of the last "API mismatch" in a kernel log; it is wrapped over lines."""
    flat = re.sub(r"\s*\n(?:\[[^\]\n]{0,40}\]\s*)?\s*(?:NVRM:)?\s*", " ", log)
    version = texts.VERSION.pattern
    pairs = re.findall(
        rf"API mismatch: the client has the version ({version}).{{0,120}}?module has the version ({version})",
        flat.replace("  ", " "),
    )
    return (pairs[-1][0].rstrip("."), pairs[-1][1].rstrip(".")) if pairs else None


def symbol_mismatch(lines: Iterable[str]) -> tuple[str, ...]:
    """Modules built against another kernel or driver ("disagrees about version of symbol", "Unknown symbol")."""
    found = set()
    for line in lines:
        match = re.search(r"([A-Za-z0-9_]{1,60}): (?:disagrees about version of symbol|Unknown symbol) ", line)
        if match is not None:
            found.add(match[1])
    return tuple(sorted(found))
