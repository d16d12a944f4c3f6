"""What this process, or the loader of its environment, really has: NCCL or RCCL, plugins, fabric libraries, driver,
GPU firmware, environment. Reads /proc, /sys and the libraries' own files; starts no program, asks no NVML.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bringup.injob import variables
from bringup.injob.reports import Report

__all__ = ["Library", "load", "mapped_files", "observe", "of_files"]


@dataclass(frozen=True, slots=True)
class Library:
    """A library whose version decides whether ranks understand each other."""

    coordinate: str
    file: re.Pattern[str]
    """Of the mapped file's name."""
    soname: str | None = None
    """What `load` asks the loader for; None: only looked for among what is mapped."""
    text: re.Pattern[bytes] | None = None
    """The version inside the file; a file can be renamed. None, or nothing found: the name's own suffix."""


_SUFFIX: Final = re.compile(r"\.so\.([0-9]+(?:\.[0-9]+)+)$")

LIBRARIES: Final[tuple[Library, ...]] = (
    Library(
        "nccl@library",
        re.compile(r"libnccl\.so"),
        "libnccl.so.2",
        re.compile(rb"NCCL version ([0-9]+\.[0-9]+\.[0-9]+(?:\+cuda[0-9.]+)?)"),
    ),
    Library(
        "rccl@library",
        re.compile(r"librccl\.so"),
        "librccl.so.1",
        re.compile(rb"RCCL version ?:? ?([0-9]+\.[0-9]+\.[0-9]+)"),
    ),
    Library(
        "aws-ofi-nccl@library",
        re.compile(r"libnccl-net-ofi|libnccl-ofi"),
        None,
        re.compile(rb"aws-ofi-nccl v?([0-9]+\.[0-9]+\.[0-9]+)"),
    ),
    Library("libfabric@library", re.compile(r"libfabric\.so"), "libfabric.so.1"),
    Library("rdma-core@library", re.compile(r"libibverbs\.so"), "libibverbs.so.1"),
    Library("ucx@library", re.compile(r"libucp\.so"), "libucp.so.0"),
    Library("cuda.runtime@library", re.compile(r"libcudart\.so"), None),
    Library("cudnn@library", re.compile(r"libcudnn\.so"), None),
    Library("driver@library", re.compile(r"libcuda\.so"), "libcuda.so.1"),
)
_PLUGINS: Final = "nccl.plugins@library"
_PLUGIN: Final = re.compile(r"lib[nr]ccl-(?:net|tuner|profiler)[A-Za-z0-9_.-]*\.so[0-9.]*")
_NVIDIA_GPUS: Final = Path("/proc/driver/nvidia/gpus")
_CARDS: Final = Path("/sys/class/drm")
_STATIC: Final = re.compile(r"libtorch_cuda\.so|libtorch_hip\.so|libjax|xla_extension")
"""Frameworks that may carry NCCL inside themselves."""


def observe(
    rank: int,
    world: int,
    attempt: str,
    *,
    pid: int | None = None,
    loading: bool = True,
    ignored: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Report:
    """The report of this process, or of process ``pid`` of this machine.

    With ``loading`` (and without ``pid``) libraries that are not mapped yet are loaded by
    the names that a framework would use. ``ignored`` names variables that may differ.
    """
    values: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    origin: dict[str, str] = {}
    mapped = False
    try:
        files = mapped_files(pid)
        mapped = any(library.file.match(os.path.basename(name)) for name in files for library in LIBRARIES[:2])
        if loading and pid is None and not mapped:
            load()
            files = mapped_files(None)
        values, unreadable, origin = of_files(files)
        given = _environment(pid) if environment is None else environment
        values |= variables.of_environment(given, frozenset(ignored) | variables.PER_RANK)
    except OSError as error:
        # A process that nobody could look into has nothing in common with one that has no NCCL.
        why = f"{error.filename}: {error.strerror}"
        unreadable = dict.fromkeys([*(library.coordinate for library in LIBRARIES), _PLUGINS], why)
        values, origin = {}, {}
    _driver(values, unreadable)
    _firmware(values, unreadable)
    return Report(rank, world, socket.gethostname(), attempt, secrets.token_hex(8), values, unreadable, origin, mapped)


def _environment(pid: int | None) -> dict[str, str]:
    """Variables as NCCL will see them in this process, or saw them when process ``pid`` was started. Raises OSError."""
    if pid is None:
        return variables.with_files(os.environ, Path("/"), variables.home())
    owner = os.stat(f"/proc/{pid}").st_uid
    return variables.with_files(variables.of_process(pid), Path(f"/proc/{pid}/root"), variables.home(owner))


def mapped_files(pid: int | None = None) -> tuple[str, ...]:
    """Files that a process has mapped, each once, in the order of their addresses. Raises OSError."""
    text = Path(f"/proc/{pid or 'self'}/maps").read_text(encoding="utf-8", errors="surrogateescape")
    names = (line.split(maxsplit=5)[-1] for line in text.splitlines() if line.count("/"))
    return tuple(dict.fromkeys(name for name in names if name.startswith("/")))


def load() -> None:
    """Ask the loader for the libraries as a framework does: the wheels' own folders first, then the loader path."""
    for library in LIBRARIES:
        if library.soname is None:
            continue
        for name in (*_in_wheels(library.soname), library.soname):
            try:
                ctypes.CDLL(name)
            except OSError:
                continue
            break


def _in_wheels(soname: str) -> Sequence[str]:
    """Where the wheels of CUDA's libraries put a library (``nvidia/nccl/lib``); frameworks look there first."""
    try:
        found = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return ()
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    return tuple(sorted(str(path) for folder in folders for path in Path(folder).glob(f"*/lib/{soname}")))


def of_files(files: Sequence[str]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """(values, unreadable, files) by coordinate, of the libraries among mapped ``files``."""
    values: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    origin: dict[str, str] = {}
    by_name = {name: os.path.basename(name) for name in files}
    for library in LIBRARIES:
        found = [name for name, base in by_name.items() if library.file.match(base)]
        if not found:
            continue
        origin[library.coordinate] = ", ".join(found)
        versions = [_version(name, library) for name in found]
        known = sorted({version for version in versions if version is not None})
        if None in versions:
            unreadable[library.coordinate] = f"{origin[library.coordinate]} names no version, inside or outside"
        else:
            # Two copies in one process are one value of their own: no other rank's single copy equals it.
            values[library.coordinate] = " and ".join(known)
    if not ({"nccl@library", "rccl@library"} & (values.keys() | unreadable.keys())):
        _inside_frameworks(by_name, values, origin)
    plugins = sorted({base for base in by_name.values() if _PLUGIN.fullmatch(base)})
    values[_PLUGINS] = ", ".join(plugins) or "absent"
    return values, unreadable, origin


def _inside_frameworks(by_name: Mapping[str, str], values: dict[str, str], origin: dict[str, str]) -> None:
    """NCCL that was linked into a framework's own library."""
    for name, base in by_name.items():
        if _STATIC.match(base):
            for library in LIBRARIES[:2]:
                version = _inside(name, library.text)
                if version is not None:
                    values[library.coordinate], origin[library.coordinate] = version, name
                    return


def _version(name: str, library: Library) -> str | None:
    inside = _inside(name, library.text)
    if inside is not None:
        return inside
    try:
        real = os.path.realpath(name)
    except OSError:
        return None
    match = _SUFFIX.search(real) or _SUFFIX.search(name)
    return match[1] if match else None


def _inside(name: str, text: re.Pattern[bytes] | None) -> str | None:
    """The version inside a file, by the string that its maker put there. Maps the file: NCCL has 300 MB."""
    if text is None:
        return None
    try:
        with open(name, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            match = text.search(content)
            return match[1].decode("ascii") if match else None
    except (OSError, ValueError):
        return None


def _driver(values: dict[str, str], unreadable: dict[str, str]) -> None:
    for module, component in (("nvidia", "driver"), ("amdgpu", "amdgpu")):
        path = Path("/sys/module") / module / "version"
        try:
            values[f"{component}@running"] = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            continue
        except OSError as error:
            unreadable[f"{component}@running"] = f"{path}: {error.strerror}"


def _firmware(
    values: dict[str, str], unreadable: dict[str, str], proc: Path = _NVIDIA_GPUS, cards: Path = _CARDS
) -> None:
    """VBIOS of the GPUs that are visible here, as one value: a rank may see one of eight, under another index."""
    _one_firmware("firmware.gpu@running", sorted(proc.glob("*/information")), _video_bios, values, unreadable)
    _one_firmware(
        "firmware.ifwi@running", sorted(cards.glob("card*/device/vbios_version")), str.strip, values, unreadable
    )


def _one_firmware(
    coordinate: str,
    files: Sequence[Path],
    version: Callable[[str], str],
    values: dict[str, str],
    unreadable: dict[str, str],
) -> None:
    found: set[str] = set()
    for path in files:
        try:
            found.add(version(path.read_text(encoding="utf-8", errors="replace")))
        except OSError as error:
            unreadable[coordinate] = f"{path}: {error.strerror}"
            return
    if found and all(found) and not any("?" in one for one in found):
        values[coordinate] = " and ".join(sorted(found))
    elif found:
        # A GPU that nobody opened yet shows question marks there.
        unreadable[coordinate] = "the driver has not read the VBIOS of every GPU yet"


def _video_bios(text: str) -> str:
    match = re.search(r"^Video BIOS:\s*(\S+)", text, re.MULTILINE)
    return match[1] if match else ""
