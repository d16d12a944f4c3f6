"""Normal forms of settings: words for on and off, lists whose order says nothing, numbers with units."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["assignments", "byte_count", "clocks", "hexdigest", "listing", "nps", "switch", "upper", "watts", "words"]

_ON: Final = frozenset({"enabled", "enable", "on", "true", "yes", "1"})
_OFF: Final = frozenset({"disabled", "disable", "off", "false", "no", "0"})


def switch(text: str) -> str:
    """``Enabled``, ``on``, ``1`` and ``True(1)`` are one; any other word (``auto``, ``pt``) stays, in lower case."""
    word = re.sub(r"\([01]\)$", "", text.lower()).strip()
    return "enabled" if word in _ON else "disabled" if word in _OFF else word


def upper(text: str) -> str:
    """Modes whose letter case differs between tools: ``spx`` = ``SPX``."""
    return text.upper()


def nps(text: str) -> str:
    """NUMA domains per socket: ``NPS1``, ``nps 1``, ``1``."""
    match = re.fullmatch(r"(?:nps)?[ _-]*(\d)", text.lower())
    return f"nps{match[1]}" if match else text.lower()


def listing(text: str) -> str:
    """A set of things, separated by commas or blanks, in one order."""
    return ",".join(sorted({part for part in re.split(r"[\s,]+", text) if part}))


def _number_of(value: str) -> str:
    """mlxconfig prints a value's name and its number, ``ETH(2)``: the number is the value."""
    match = re.fullmatch(r"[\w-]+\((\w+)\)", value)
    return match[1] if match else value


def assignments(text: str) -> str:
    """``Key: value`` lines or ``KEY=value`` words as ``KEY=value;…``, sorted by key; the last one of a key counts."""
    found: dict[str, str] = {}
    for part in re.split(r"[\n;]+", text):
        match = re.fullmatch(r"\s*([\w./-]+)\s*[:=]\s*(.*?)\s*", part)
        if match is None:
            if part.strip():
                return text
            continue
        found[match[1]] = _number_of(match[2].strip("\"'"))
    return ";".join(f"{key}={value}" for key, value in sorted(found.items())) if found else text


def clocks(text: str) -> str:
    """As `assignments`, the unit left out: ``graphics: 1980 MHz`` = ``graphics=1980``."""
    return assignments(re.sub(r"(?<=\d)\s*MHz", "", text, flags=re.IGNORECASE))


def watts(text: str) -> str:
    """``700.00 W`` = ``700``."""
    match = re.fullmatch(r"([0-9]{1,18})(?:\.([0-9]+))?\s*(?:[Ww](?:atts?)?)?", text)
    if match is None:
        return text
    fraction = (match[2] or "").rstrip("0")
    return str(int(match[1])) + (f".{fraction}" if fraction else "")


_OF_ONE_MACHINE: Final = re.compile(
    r"(BOOT_IMAGE|root|initrd|resume|BOOTIF|ip|ostree|rd\.(luks|lvm|md)\.[\w.]+|systemd\.machine_id)=", re.IGNORECASE
)


def words(text: str) -> str:
    """Kernel arguments in one order, without those that name this machine's disks and addresses.

    Of one argument given twice the last one counts, so their order among
    themselves stays.
    """
    kept = [word for word in text.split() if not _OF_ONE_MACHINE.match(word)]
    return " ".join(sorted(kept, key=lambda word: word.partition("=")[0]))


def byte_count(text: str) -> str:
    """``4k``, ``4 KiB`` and ``4096`` are one page size."""
    match = re.fullmatch(r"([0-9]{1,18})\s*([km])(?:i?b)?", text, re.IGNORECASE)
    return str(int(match[1]) * (1024 if match[2].lower() == "k" else 1024**2)) if match else text


def hexdigest(text: str) -> str:
    """A digest in lower case, the algorithm's name left out."""
    return re.sub(r"^sha256:", "", text.lower())
