"""What follows from a GPU's product name: maker, architecture, and whether its fabric spans a rack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pinsets.rules.conditions import has_words

__all__ = ["ARCHITECTURES", "architecture", "in_rack", "vendor"]

ARCHITECTURES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Blackwell": ("GB200", "GB300", "B100", "B200", "B300", "GB10", "Blackwell"),
        "Hopper": ("H100", "H200", "H20", "H800", "GH200"),
        "Ada Lovelace": ("L40S", "L40", "L4", "L20", "RTX 6000 Ada"),
        "Ampere": ("A100", "A800", "A30", "A40", "A10", "A16", "A2"),
        "Turing": ("T4", "Quadro RTX"),
        "Volta": ("V100",),
        "Pascal": ("P100", "P40", "P4"),
        "CDNA4": ("MI350X", "MI355X"),
        "CDNA3": ("MI300X", "MI300A", "MI325X", "MI308X"),
        "CDNA2": ("MI210", "MI250", "MI250X"),
        "CDNA": ("MI100",),
    }
)
"""Architecture → phrases that product names hold, as the vendors' tools print them."""

_RACK: Final = ("GB200", "GB300")


def architecture(product: str) -> str | None:
    """``NVIDIA GB200`` → ``Blackwell``; None for a product that no phrase names."""
    return next(
        (name for name, phrases in ARCHITECTURES.items() if any(has_words(product, phrase) for phrase in phrases)), None
    )


def vendor(product: str) -> str | None:
    """``nvidia`` or ``amd``; None where the name says neither."""
    if re.search(r"\bnvidia\b|\btesla\b", product, re.IGNORECASE):
        return "nvidia"
    return "amd" if re.search(r"\bamd\b|\binstinct\b", product, re.IGNORECASE) else None


def in_rack(product: str) -> bool:
    """Whether the product's NVLink fabric spans a rack."""
    return any(has_words(product, phrase) for phrase in _RACK)
