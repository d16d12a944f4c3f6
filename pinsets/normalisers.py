"""One text per version, whatever printed it: a small function per kind of component.

Every function takes what a source printed and gives what is compared. None raises:
text in no known form comes back trimmed, so that an unknown vendor's string is still
compared as text. Equal and unequal pairs seen in real output are test cases in
tests/data/normalisers; the function that a component uses stands in components.yaml.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from lockstep.base.names import ComponentName
from pinsets import components

__all__ = ["NORMALISERS", "apply", "normalise"]

_ROUNDS: Final = 8
"""Far above what any real string needs; a text such as ``1:1:1:1:…`` must still end."""


@functools.lru_cache(maxsize=65_536)
def normalise(component: str, raw: str) -> str:
    """``raw`` in the normal form of a registered component; trimmed for one that is not registered.

    Cached: a sweep of 10,000 nodes reads half a million strings, few of them distinct.
    """
    entry = components.load().get(ComponentName(component))
    return apply(entry.normaliser if entry else "plain", raw)


def apply(name: str, raw: str) -> str:
    """``raw`` through the normaliser of that name until nothing changes, so that normal forms stay what they are."""
    function = NORMALISERS[name]
    text = raw.strip()
    for _ in range(_ROUNDS):
        again = function(text).strip()
        if again == text:
            break
        text = again
    return text


def plain(text: str) -> str:
    """Settings and whatever has no rule: blanks at the ends do not count (VBIOS strings carry them)."""
    return text


def caseless(text: str) -> str:
    """Vendor prefixes differ in case between tools: ``gb200nvl-24.08-2`` = ``GB200Nvl-24.08-2``."""
    return text.lower()


def os_release(text: str) -> str:
    """``debian 12`` = ``debian-12``; the quotes of os-release do not count."""
    return re.sub(r"[\s\"']+", "-", text.replace('"', " ").replace("'", " ").strip().lower())


def kernel(text: str) -> str:
    """The release as ``uname -r`` prints it: ``linux-image-6.1.0-41-amd64``, ``vmlinuz-6.1.0-41-amd64``."""
    text = text.rpartition("/")[2]
    return re.sub(r"^(linux-image-(unsigned-)?|linux-modules-|vmlinuz-|vmlinux-|kernel-core-|kernel-)(?=\d)", "", text)


def _number_after_words(text: str) -> str:
    """``IMEX version is: 570.148.08`` → ``570.148.08``; unchanged without a number after words."""
    match = re.fullmatch(r"[A-Za-z][\w .()/-]*?[\s:]+v?(\d\S*)(\s.*)?", text, re.DOTALL)
    return match[1] if match else text


def driver(text: str) -> str:
    """All digits, two parts or three (``595.80``, ``580.105.08``): no epoch, Debian revision or ``-server`` suffix."""
    text = re.sub(r"^\d+:", "", _number_after_words(text))
    match = re.match(r"(\d+(?:\.\d+)+)(?=$|[-+~ ])", text)
    return match[1] if match else text


def debian(text: str) -> str:
    """The upstream version of a package: ``1:4.5.2-1`` = ``4.5.2``."""
    text = re.sub(r"^\d+:", "", _number_after_words(text))
    return re.sub(r"-\d[\w.+~]*$", "", text) if re.match(r"\d+(\.\d+)+", text) else text


def semver(text: str) -> str:
    """``Kubernetes v1.37.1``, ``1.37.1-1.1``, ``1:1.37.1-1``; a candidate keeps its mark (``1.18.0~rc.1-1``)."""
    text = debian(re.sub(r"^v(?=\d)", "", _number_after_words(text)))
    return re.sub(r"~(?=(alpha|beta|rc))", "-", text)


def nccl(text: str) -> str:
    """``22809`` (X*10000+Y*100+Z from 2.9 on), ``2708`` (X*1000+Y*100+Z before), ``2.28.9-1+cuda13.0`` → ``2.28.9``.

    Formula: ``src/nccl.h.in`` of NCCL. The CUDA that it is built for is not part of it.
    """
    text = _number_after_words(text)
    text = re.sub(r"^(?:.*/)?libnccl\.so\.(?=\d)", "", text)
    if re.fullmatch(r"\d{4,6}", text):
        number = int(text)
        base = 10_000 if number >= 10_000 else 1_000
        return f"{number // base}.{number % base // 100}.{number % 100}"
    match = re.match(r"(\d+\.\d+(?:\.\d+)*)(?=$|[-+~ ])", text)
    return match[1] if match else text


def rccl(text: str) -> str:
    """``2.22.3-HEAD:1c0b9a9`` and ``2.16.5+hip5.6`` → the number; packages carry ROCm's number behind it."""
    return nccl(re.sub(r"^(?:.*/)?librccl\.so\.(?=\d)", "", text))


def ofed(text: str) -> str:
    """``MLNX_OFED_LINUX-5.8-1.1.2.1:`` and ``OFED-internal-25.10-1.7.1.413:`` (the colon is the tool's)."""
    text = text.rstrip(":").strip()
    return re.sub(r"^(MLNX_OFED_LINUX|OFED-internal|MLNX_EN|doca-ofed)-(?=\d)", "", text)


def vbios(text: str) -> str:
    """Upper case hex parts, trailing blanks dropped: ``97.00.b9.00.69`` = ``97.00.B9.00.69``."""
    return text.upper()


def nic_firmware(text: str) -> str:
    """``28.39.2048 (MT_0000000838)`` → ``28.39.2048``: the PSID is another fact."""
    match = re.match(r"(\d+\.\d+\.\d+)(?=$|\s|\()", text)
    return match[1] if match else text


def bios(text: str) -> str:
    """A vendor's prefix before a dotted number does not count: ``0ACTV_00.01.012`` = ``00.01.012``."""
    return re.sub(r"^[A-Za-z0-9]+_(?=\d+(\.\d+)+$)", "", text)


def hex_ascii(text: str) -> str:
    """ASCII printed as hex: ``312e3041`` = ``1.0A``. Only what decodes to a dotted version."""
    bare = re.sub(r"^0x", "", text, flags=re.IGNORECASE)
    if len(bare) % 2 or not re.fullmatch(r"[0-9A-Fa-f]{6,32}", bare):
        return text
    decoded = bytes.fromhex(bare).decode("latin-1")
    return decoded if re.fullmatch(r"[0-9A-Za-z]+(\.[0-9A-Za-z]+)+", decoded) else text


def cpld(text: str) -> str:
    """Bytes printed apart: ``0x00 0x0c 0x06 0x04`` = ``C_06_04``, the leading zero bytes dropped."""
    parts = text.split()
    if len(parts) < 2 or not all(re.fullmatch(r"0[xX][0-9A-Fa-f]{1,2}", part) for part in parts):
        return text
    numbers = [int(part, 16) for part in parts]
    while len(numbers) > 1 and numbers[0] == 0:
        del numbers[0]
    return "_".join([f"{numbers[0]:X}", *(f"{number:02X}" for number in numbers[1:])])


def unpadded(text: str) -> str:
    """Leading zeros of the parts do not count: ``2.07.19`` = ``2.7.19``."""
    if not re.fullmatch(r"\d+(\.\d+)+", text):
        return text
    return ".".join(str(int(part)) for part in text.split("."))


def amdgpu(text: str) -> str:
    """The module's number: ``1:6.16.13.30300000-2226257.24.04`` = ``6.16.13``; behind it stands the package release."""
    text = debian(text)
    match = re.fullmatch(r"(\d+\.\d+\.\d+)\.\d{5,}", text)
    return match[1] if match else text


def rocm(text: str) -> str:
    """``7.2.0.70200-43~24.04`` and ``7.2.0-43`` = ``7.2.0``."""
    text = debian(text)
    match = re.fullmatch(r"(\d+\.\d+\.\d+)\.\d{5,}", text)
    return match[1] if match else text


NORMALISERS: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {
        "amdgpu": amdgpu,
        "bios": bios,
        "caseless": caseless,
        "cpld": cpld,
        "debian": debian,
        "driver": driver,
        "hex_ascii": hex_ascii,
        "kernel": kernel,
        "nccl": nccl,
        "nic_firmware": nic_firmware,
        "ofed": ofed,
        "os": os_release,
        "plain": plain,
        "rccl": rccl,
        "rocm": rocm,
        "semver": semver,
        "unpadded": unpadded,
        "vbios": vbios,
    }
)
