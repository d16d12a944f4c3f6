"""Normal forms of software versions: what packages, tools and file names print of one release."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = [
    "amdgpu",
    "amdgpu_release",
    "cudnn",
    "dcgm_exporter",
    "debian",
    "doca",
    "driver",
    "efa",
    "flavour",
    "hpcx",
    "kernel",
    "library",
    "nccl",
    "nvos",
    "ofed",
    "os_release",
    "rccl",
    "rocm",
    "semver",
]


def number_after_words(text: str) -> str:
    """``IMEX version is: 570.148.08`` → ``570.148.08``; unchanged without a number after words."""
    match = re.fullmatch(r"[A-Za-z][\w .()/-]*?[\s:]+v?(\d\S*)(\s.*)?", text, re.DOTALL)
    return match[1] if match else text


def driver(text: str) -> str:
    """All digits, two parts or three (``595.80``, ``580.105.08``): no epoch, Debian revision or ``-server`` suffix."""
    text = re.sub(r"^\d+:", "", number_after_words(text))
    match = re.match(r"(\d+(?:\.\d+)+)(?=$|[-+~ ])", text)
    return match[1] if match else text


def flavour(text: str) -> str:
    """Which kind of kernel module, by its licence or its banner: ``Dual MIT/GPL`` is open, ``NVIDIA`` proprietary."""
    words = " ".join(text.lower().split())
    if words in ("dual mit/gpl", "mit/gpl", "open") or "open kernel module" in words:
        return "open"
    return "proprietary" if words in ("nvidia", "proprietary", "closed") or "kernel module" in words else words


def debian(text: str) -> str:
    """The upstream version of a package: ``1:4.5.2-1`` = ``4.5.2``."""
    text = re.sub(r"^\d+:", "", number_after_words(text))
    return re.sub(r"-\d[\w.+~]*$", "", text) if re.match(r"\d+(\.\d+)+", text) else text


def semver(text: str) -> str:
    """``Kubernetes v1.37.1``, ``1.37.1-1.1``, ``1:1.37.1-1``; a candidate keeps its mark (``1.18.0~rc.1-1``)."""
    text = re.sub(r"^v(?=\d)", "", number_after_words(text))
    # A cloud's build of the same release: every node of it prints its own hash, every plugin its maker.
    text = debian(re.sub(r"-(?:eks-[0-9a-f]+|aws)$", "", text))
    return re.sub(r"~(?=(alpha|beta|rc))", "-", text)


def library(text: str) -> str:
    """The suffix of a real file name, or what a tool says of itself.

    ``/usr/lib/libcuda.so.580.105.08``, ``libfabric: 2.5.0``, ``# Library version: 1.19.0``, ``1.19.0-1.2507097``;
    what stands directly behind the digits (``1.22.0amzn1.0``) is a build of its own and stays.
    """
    first = text.splitlines()[0].lstrip("# ") if text.strip() else text
    named = re.match(r"(?:.*/)?lib[\w+-]+\.so\.(\d\S*)", first)
    return debian(named[1] if named else first)


def cudnn(text: str) -> str:
    """Three numbers: header and libraries have no more, packages and wheels a fourth of the build (``9.17.0.29``).

    An integer is MAJOR*10000+MINOR*100+PATCH from 9 on and MAJOR*1000+… before (``cudnn_version.h``).
    """
    text = library(text)
    if re.fullmatch(r"\d{4,6}", text):
        return nccl(text)
    match = re.match(r"(\d+\.\d+\.\d+)(?:\.\d+)?(?=$|[-+~ ])", text)
    return match[1] if match else text


def os_release(text: str) -> str:
    """``debian 12`` = ``debian-12``; the quotes of os-release do not count."""
    return re.sub(r"[\s\"']+", "-", text.replace('"', " ").replace("'", " ").strip().lower())


def kernel(text: str) -> str:
    """The release as ``uname -r`` prints it: ``linux-image-6.1.0-41-amd64``, ``vmlinuz-6.1.0-41-amd64``."""
    text = text.rpartition("/")[2]
    return re.sub(r"^(linux-image-(unsigned-)?|linux-modules-|vmlinuz-|vmlinux-|kernel-core-|kernel-)(?=\d)", "", text)


def nccl(text: str) -> str:
    """``22809`` (X*10000+Y*100+Z from 2.9 on), ``2708`` (X*1000+Y*100+Z before), ``2.28.9-1+cuda13.0`` → ``2.28.9``.

    Formula: ``src/nccl.h.in`` of NCCL. The CUDA that it is built for is not part of it.
    """
    text = number_after_words(text)
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


def hpcx(text: str) -> str:
    """The first line of VERSION and the folder's name: ``HPC-X v2.25.1``, ``hpcx-v2.25.1-gcc-doca_ofed-…``."""
    match = re.match(r"(?:.*/)?HPC-?X[- ]v?(\d+(?:\.\d+)+)", text, re.IGNORECASE)
    return match[1] if match else re.sub(r"^v(?=\d)", "", text)


def efa(text: str) -> str:
    """``2.17.2g`` = ``2.17.2``: the letter says that the module was built with GPU-direct."""
    text = debian(text)
    return re.sub(r"(?<=\d)g$", "", text) if re.match(r"\d+(\.\d+)+", text) else text


def dcgm_exporter(text: str) -> str:
    """The exporter's own number of an image tag that begins with DCGM's: ``4.6.0-4.8.3-ubuntu24.04`` = ``4.8.3``."""
    match = re.match(r"\d+\.\d+\.\d+-(\d+\.\d+\.\d+)(?=$|-)", text)
    return match[1] if match else semver(text)


def doca(text: str) -> str:
    """Release and build: ``3.2.1-044000-25.10-ubuntu2404`` = ``3.2.1-044000``; OFED's release follows from it."""
    match = re.match(r"(?:doca-(?:host|ofed|all)[-_ ])?(\d+\.\d+\.\d+-\d{6})(?=$|-)", text)
    return match[1] if match else text


def ofed(text: str) -> str:
    """``MLNX_OFED_LINUX-5.8-1.1.2.1:``, ``OFED-internal-25.10-1.7.1.413:`` and the module's ``5.8-1.1.2``.

    The module carries three numbers behind the release, the tool four, the package of the modules both
    release and numbers twice (``24.10.OFED.24.10.0.7.0.1-1``). Three are compared.
    """
    text = text.rstrip(":").strip()
    text = re.sub(r"^(MLNX_OFED_LINUX|OFED-internal|MLNX_EN|doca-ofed)-(?=\d)", "", text)
    packaged = re.match(r"(\d+\.\d+)\.OFED\.\1\.(\d+\.\d+\.\d+)(?=\.|-|$)", text)
    if packaged:
        return f"{packaged[1]}-{packaged[2]}"
    match = re.match(r"(\d+\.\d+-\d+\.\d+\.\d+)(?:\.\d+)?$", text)
    return match[1] if match else text


AMDGPU_MODULE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "30.10": "6.14.14",
        "30.20": "6.16.6",
        "30.30": "6.16.13",
        "31.30": "6.19.4",
        "31.40": "6.19.14",
    }
)
"""Release of the package repository → number of the module in it, as the names of AMD's packages pair them."""


def amdgpu(text: str) -> str:
    """The module's number: ``1:6.16.13.30300000-2226257.24.04`` = ``6.16.13`` = release ``30.30``."""
    text = debian(text)
    match = re.fullmatch(r"(\d+\.\d+\.\d+)\.\d{5,}", text)
    text = match[1] if match else text
    release = re.fullmatch(r"(3\d\.\d+)(?:\.\d+){0,2}(?:\.\d{8})?", text)
    return AMDGPU_MODULE.get(release[1], text) if release else text


def amdgpu_release(text: str) -> str:
    """The release of the package repository, which a package's version ends in.

    ``1:6.10.5.60300-2084815.24.04`` = ``6.3.0``, ``30.20.1.0.30200100-2255209.24.04`` = ``30.20.1``.
    """
    text = re.sub(r"^\d+:", "", text)
    match = re.match(r"\d+(?:\.\d+)*?\.(\d{8}|\d{5})(?=-|$)", text)
    if match:
        digits = match[1].zfill(6) if len(match[1]) == 5 else match[1]
        return ".".join(str(int(digits[at : at + 2])) for at in (0, 2, 4))
    bare = re.fullmatch(r"(\d+\.\d+\.\d+)(?:\.\d+)?(?:-\S*)?", text)
    return bare[1] if bare else text


def rocm(text: str) -> str:
    """``7.2.0.70200-43~24.04`` and ``7.2.0-43`` = ``7.2.0``."""
    text = debian(text)
    match = re.fullmatch(r"(\d+\.\d+\.\d+)\.\d{5,}", text)
    return match[1] if match else text


def nvos(text: str) -> str:
    """``nvos-25.02.2445``, ``NVOS 25.02.2445``."""
    match = re.fullmatch(r"nvos[- ]v?(\d[\w.]*)", text, re.IGNORECASE)
    return match[1] if match else text
