"""Normal forms of firmware versions: hex-ASCII, bytes, vendor prefixes, letter case, leading zeros."""

from __future__ import annotations

import re

__all__ = ["bios", "caseless", "cpld", "hex_ascii", "nic_firmware", "nvlink_firmware", "pldm", "unpadded", "vbios"]


def caseless(text: str) -> str:
    """Vendor prefixes differ in case between tools: ``gb200nvl-24.08-2`` = ``GB200Nvl-24.08-2``."""
    return text.lower()


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
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})+", text):
        return text
    return ".".join(str(int(part)) for part in text.split("."))


def nvlink_firmware(text: str) -> str:
    """Colons or points between the numbers: ``36:2014:1862`` = ``36.2014.1862``."""
    return text.replace(":", ".") if re.fullmatch(r"\d+([:.]\d+)+", text) else text


def pldm(text: str) -> str:
    """The last three of four parts: the tool prints ``00.26.00.02`` where documents say ``01.26.00.02``."""
    match = re.fullmatch(r"0[01]\.(\d+\.\d+\.\d+)", text)
    return match[1] if match else text
