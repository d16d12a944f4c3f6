"""One text per version, whatever printed it: a small function per kind of component.

Every function takes what a source printed and gives what is compared. None raises:
text in no known form comes back trimmed, so that an unknown vendor's string is still
compared as text. Equal and unequal pairs seen in real output are test cases in
tests/data/normalisers; the function that a component uses stands in components.yaml.
The functions themselves: `pinsets.normal_versions`, `normal_firmware`, `normal_settings`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from lockstep.base.names import ComponentName
from pinsets import components, normal_firmware, normal_settings, normal_versions

__all__ = ["DOUBTFUL", "NORMALISERS", "apply", "equal", "normalise"]

_ROUNDS: Final = 8
"""Far above what any real string needs; a text such as ``1:1:1:1:…`` must still end."""


@functools.lru_cache(maxsize=65_536)
def normalise(component: str, raw: str) -> str:
    """``raw`` in the normal form of a registered component; trimmed for one that is not registered.

    Cached: a sweep of 10,000 nodes reads half a million strings, few of them distinct.
    """
    entry = components.load().get(ComponentName(component))
    return apply(entry.normaliser if entry else "plain", raw)


def equal(component: str, left: str, right: str) -> bool:
    """Whether two texts of sources mean one version of a component."""
    return normalise(component, left) == normalise(component, right)


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


NORMALISERS: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {
        "amdgpu": normal_versions.amdgpu,
        "amdgpu_release": normal_versions.amdgpu_release,
        "assignments": normal_settings.assignments,
        "bios": normal_firmware.bios,
        "bytes": normal_settings.byte_count,
        "caseless": normal_firmware.caseless,
        "clocks": normal_settings.clocks,
        "cpld": normal_firmware.cpld,
        "cudnn": normal_versions.cudnn,
        "dcgm_exporter": normal_versions.dcgm_exporter,
        "debian": normal_versions.debian,
        "doca": normal_versions.doca,
        "driver": normal_versions.driver,
        "efa": normal_versions.efa,
        "flavour": normal_versions.flavour,
        "hex_ascii": normal_firmware.hex_ascii,
        "hexdigest": normal_settings.hexdigest,
        "hpcx": normal_versions.hpcx,
        "kernel": normal_versions.kernel,
        "library": normal_versions.library,
        "listing": normal_settings.listing,
        "nccl": normal_versions.nccl,
        "nic_firmware": normal_firmware.nic_firmware,
        "nps": normal_settings.nps,
        "nvlink_firmware": normal_firmware.nvlink_firmware,
        "nvos": normal_versions.nvos,
        "ofed": normal_versions.ofed,
        "os": normal_versions.os_release,
        "plain": plain,
        "pldm": normal_firmware.pldm,
        "rccl": normal_versions.rccl,
        "rocm": normal_versions.rocm,
        "semver": normal_versions.semver,
        "switch": normal_settings.switch,
        "unpadded": normal_firmware.unpadded,
        "upper": normal_settings.upper,
        "vbios": normal_firmware.vbios,
        "watts": normal_settings.watts,
        "words": normal_settings.words,
    }
)

DOUBTFUL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "pldm": "seen once: that the first part carries nothing is inferred from one tool's output",
        "efa": "inferred: that the trailing letter only marks a build option",
        "ofed": "inferred: that the fourth number of the tool never differs where the other three agree",
    }
)
"""Normalisers that make texts equal on thin evidence, and why; `docs/components.md` shows the mark."""
