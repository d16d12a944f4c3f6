"""A pinset and its lock in other tools' words: apt, dnf, Ansible, GPU operator, container builds. Pure.

Package managers get the lock's exact packages and nothing that moves; chart values and
build arguments get versions, since images are named by their own tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from pinsets import drafts, rpmversions, wishes
from pinsets.model import Lock, LockedPackage, Pin, Pinset, Scope

__all__ = ["FORMS", "NEEDS_LOCK", "render"]

PRIORITY: Final = 1001
"""Above 1000 apt installs the version even where that is a downgrade."""


def render(form: str, pinset: Pinset, lock: Lock | None) -> str:
    """The text of one form. Raises ValueError for a form that needs a lock and gets none, or finds nothing to say."""
    if form in NEEDS_LOCK and lock is None:
        raise ValueError(f"{form} needs exact packages, so a lock")
    text = FORMS[form](pinset, lock)
    if text is None:
        raise ValueError(f"it pins nothing that {form} could say")
    return text


def _head(pinset: Pinset, lock: Lock | None) -> list[str]:
    name = f"{pinset.pinset}@{lock.os}, full {lock.full}" if lock is not None else pinset.pinset
    return [f"# pinset {name}", "# written by `lockstep pin export`; change the pinset, not this file"]


def _apt(pinset: Pinset, lock: Lock | None) -> str | None:
    """A file for /etc/apt/preferences.d; holds as the command that sets them."""
    if lock is None or not lock.packages:
        return None
    names = " ".join(package.name for package in lock.packages)
    lines = [*_head(pinset, lock), f"# apt-mark hold {names}"]
    for package in lock.packages:
        lines += ["", f"Package: {package.name}", f"Pin: version {package.version}", f"Pin-Priority: {PRIORITY}"]
    return "\n".join(lines) + "\n"


def _dnf(pinset: Pinset, lock: Lock | None) -> str | None:
    """A file for /etc/dnf/plugins/versionlock.list."""
    if lock is None or not lock.packages:
        return None
    lines = _head(pinset, lock)
    if any(_debian(package) for package in lock.packages):
        raise ValueError(f"the lock is for {lock.os}, whose packages are Debian's")
    lines += [f"{package.name}-{_whole(package.version)}.*" for package in lock.packages]
    return "\n".join(lines) + "\n"


def _debian(package: LockedPackage) -> bool:
    return package.filename.endswith(".deb")


def _whole(version: str) -> str:
    """``epoch:version-release``, the epoch also where it is 0: as dnf matches it."""
    evr = rpmversions.parse(version)
    return f"{evr.epoch}:{evr.version}" + (f"-{evr.release}" if evr.release is not None else "")


def _ansible(pinset: Pinset, lock: Lock | None) -> str | None:
    """Variables, each beginning with ``lockstep_``."""
    lines = ["---", *_head(pinset, lock), f"lockstep_pinset: {drafts.quoted(pinset.pinset)}"]
    if lock is not None:
        lines += [f"lockstep_os: {drafts.quoted(lock.os)}", f"lockstep_lock: {drafts.quoted(lock.full)}"]
        lines.append("lockstep_packages:" if lock.packages else "lockstep_packages: []")
        # apt's module takes name=version, dnf's takes name-version: both parts, so that either can be built.
        for package in lock.packages:
            lines += [
                f"  - name: {drafts.quoted(package.name)}",
                f"    version: {drafts.quoted(package.version)}",
                f"    sha256: {drafts.quoted(package.sha256)}",
            ]
    lines.append("lockstep_versions:")
    for pin in wishes.pins(pinset):
        lines.append(f"  {drafts.quoted(pin.component)}: {drafts.quoted(pin.version)}")
    return "\n".join(lines) + "\n"


_OPERATOR: Final[tuple[tuple[str, str, str], ...]] = (
    ("driver", "driver", "version"),
    ("container-toolkit", "toolkit", "version"),
    ("dcgm", "dcgm", "version"),
    ("dcgm-exporter", "dcgmExporter", "version"),
    ("device-plugin", "devicePlugin", "version"),
    ("mig-manager", "migManager", "version"),
    ("gds", "gds", "version"),
    ("gdrdrv", "gdrcopy", "version"),
)
"""(component, part of the chart's values, key)."""
_PREFIXED: Final = frozenset({"container-toolkit", "device-plugin", "mig-manager", "gds", "gdrdrv"})
"""Images whose tags begin with a `v`."""


def _operator(pinset: Pinset, lock: Lock | None) -> str | None:
    """Values of the GPU operator's chart. Tags of some images carry a distribution behind the version."""
    parts: dict[str, list[str]] = {}
    for component, part, key in _OPERATOR:
        pin = pinset.pins.get(component)
        version = _version(pin)
        if version is None:
            continue
        text = version if component not in _PREFIXED or version.startswith("v") else f"v{version}"
        exact = pin.package if pin is not None and component == "dcgm" and pin.package else text
        parts.setdefault(part, []).append(f"  {key}: {drafts.quoted(re.sub(r'^[0-9]+:', '', exact))}")
    flavour = _version(pinset.pins.get("driver.flavour"))
    if flavour is not None:
        kind = {"open": "open", "proprietary": "proprietary"}.get(flavour, "auto")
        parts.setdefault("driver", []).append(f"  kernelModuleType: {kind}")
    if not parts:
        return None
    lines = _head(pinset, lock)
    lines.append("# images whose tags end in a distribution (dcgm: -ubuntu24.04) need it added")
    for part, values in parts.items():
        lines += [f"{part}:", *values]
    return "\n".join(lines) + "\n"


_ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cuda": "CUDA_VERSION",
        "cudnn": "CUDNN_VERSION",
        "nccl": "NCCL_VERSION",
        "aws-ofi-nccl": "AWS_OFI_NCCL_VERSION",
        "nccl-gib": "NCCL_GIB_VERSION",
        "efa-installer": "EFA_INSTALLER_VERSION",
        "hpcx": "HPCX_VERSION",
        "ucx": "UCX_VERSION",
        "libfabric": "LIBFABRIC_VERSION",
        "rdma-core": "RDMA_CORE_VERSION",
        "gdrcopy": "GDRCOPY_VERSION",
        "rocm": "ROCM_VERSION",
        "rccl": "RCCL_VERSION",
    }
)
"""What is inside a job's image; the driver's own libraries come from the host."""


def _container(pinset: Pinset, lock: Lock | None) -> str | None:
    """``NAME=value`` lines: build arguments (`--build-arg-file`), with the exact packages beside the versions."""
    lines = []
    for pin in wishes.pins(pinset):
        if (name := _ARGUMENTS.get(pin.component)) is not None:
            lines.append(f"{name}={pin.version}")
            lines += [f"{name.removesuffix('_VERSION')}_PACKAGE={text}" for text in _exact(pinset, lock, pin.component)]
    shared = [pin for pin in wishes.pins(pinset) if pin.scope in (Scope.JOB, Scope.DOMAIN)]
    if not lines:
        return None
    if lock is not None and shared:
        lines.append(f"LOCKSTEP_JOB_DIGEST={lock.job}")
    return "\n".join([*_head(pinset, lock), *lines]) + "\n"


def _exact(pinset: Pinset, lock: Lock | None, component: str) -> Iterator[str]:
    """``name=version`` of the package that names the component's version."""
    if lock is None:
        return
    wanted = next((one for one in wishes.carriers(pinset, lock.os) if one.component == component), None)
    package = next((one for one in lock.packages if wanted is not None and one.name == wanted.packages[0]), None)
    if package is not None:
        yield f"{package.name}={package.version}" if _debian(package) else f"{package.name}-{package.version}"


def _version(pin: Pin | None) -> str | None:
    if pin is None:
        return None
    return pin.version or (pin.accept[0] if pin.accept else None)


FORMS: Final[Mapping[str, Callable[[Pinset, Lock | None], str | None]]] = MappingProxyType(
    {"apt": _apt, "dnf": _dnf, "ansible": _ansible, "gpu-operator": _operator, "container": _container}
)
NEEDS_LOCK: Final = frozenset({"apt", "dnf"})
