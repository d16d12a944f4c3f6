"""NVIDIA's ``redistrib_*.json`` → a draft. Pure.

One file per release of CUDA, of the driver, of cuDNN …: ``release_label`` and
``release_product`` beside one object per part with its ``version`` and, per platform,
path and checksums. Source of the form: developer.download.nvidia.com/compute/*/redist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pinsets.drafts import Draft
from pinsets.facts import Layer

__all__ = ["draft", "fits"]

_PARTS: Final[Mapping[str, str]] = {
    "nvidia_driver": "driver",
    "fabricmanager": "fabricmanager",
    "imex": "imex",
    "nvidia_imex": "imex",
    "libnvidia_nscq": "nscq",
    "nvlsm": "nvlsm",
    "nvidia_fs": "gds",
    "mft": "mft",
    "cuda_cudart": "cuda.runtime",
    "cuda_compat": "cuda.compat",
    "cudnn": "cudnn",
    "nccl": "nccl",
}
"""Part → component; a version of every other part is the toolkit's own business."""


def fits(data: Any) -> bool:
    """Whether it looks like such a file. The oldest ones have a date and nothing else beside the parts."""
    return isinstance(data, dict) and ("release_label" in data or "release_date" in data)


def draft(data: Mapping[str, Any], platform: str, place: str) -> Draft:
    """The versions for one platform, such as ``linux-x86_64`` or ``linux-sbsa``.

    Raises ValueError where no part is built for it.
    """
    product, label = str(data.get("release_product", "cuda")), str(data.get("release_label", ""))
    found = Draft(f"NVIDIA redistrib {product} {label}, {platform} ({place})")
    parts = {
        name: part for name, part in data.items() if isinstance(part, dict) and isinstance(part.get("version"), str)
    }
    if not any(platform in part or "linux-all" in part for part in parts.values()):
        there = sorted({key for part in parts.values() for key, value in part.items() if isinstance(value, dict)})
        raise ValueError(f"no part is built for {platform}; there are {', '.join(there) or 'none'}")
    if product == "cuda" and label:
        # In its repositories only meta packages have the toolkit's number, and they carry nothing: the number is read
        # on disk, the packages are held by the runtime's own.
        found.add("cuda", label, f"{place}: release_label", layers=(Layer.ONDISK,))
    for name, part in parts.items():
        component = _PARTS.get(name)
        if component is None:
            continue
        if platform not in part and "linux-all" not in part:
            found.leave(name, f"is not built for {platform}")
            continue
        layers = (Layer.LIBRARY, Layer.PACKAGE) if product == "cuda" and component == "cuda.runtime" else None
        found.add(component, str(part["version"]), f"{place}: {name}", layers=layers)
    return found
