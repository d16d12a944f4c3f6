"""Libraries that a job loads: NCCL, RCCL and their plugins, cuDNN, CUDA's runtime, libfabric, verbs, UCX, HPC-X."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bringup.parsers import collectives, communication, cuda, loader, texts
from bringup.parsers.parsed import Item, Parsed
from bringup.parsers.texts import Raw
from pinsets.facts import ABSENT, Absent, Layer, Unreadable

__all__ = ["attributes", "items"]

_LDCONFIG = "ldconfig -p"


def items(parsed: Parsed) -> Iterator[Item]:
    """Facts of libraries, by the copy that the loader finds first."""
    libraries = parsed.libraries
    yield "nccl", Layer.LIBRARY, None, parsed.nccl, "libnccl.so.2"
    if not parsed.asked("libraries"):
        return
    rccl, _ = collectives.library(libraries, "librccl.so.1")
    simple: tuple[tuple[str, Raw, str], ...] = (
        ("rccl", rccl, "librccl.so.1"),
        ("nccl.plugins", collectives.plugins(libraries), "lib[nr]ccl-*.so"),
        ("cudnn", loader.by_file_name(libraries, "libcudnn.so.9"), "libcudnn.so.9"),
        ("cuda.runtime", _runtime(parsed), "libcudart.so"),
        ("cuda.compat", _compat(parsed), "libcuda.so.1"),
        ("gdrcopy", loader.by_file_name(libraries, "libgdrapi.so.2"), "libgdrapi.so.2"),
        ("rdma-core", _rdma_core(parsed), "libibverbs.so.1"),
        ("ucx", communication.ucx(parsed.record("ucx")), "ucx_info -v"),
        ("libfabric", _libfabric(parsed, "library", "program"), "fi_info --version"),
    )
    yield from ((name, Layer.LIBRARY, None, value, source) for name, value, source in simple)
    # The tools stand for what is installed: they are of one build with the library that they load.
    yield "ucx", Layer.ONDISK, None, communication.ucx(parsed.record("ucx")), "ucx_info -v"
    yield "libfabric", Layer.ONDISK, None, _libfabric(parsed, "program", "library"), "fi_info --version"
    if libraries and not isinstance(libraries, Unreadable) and libraries.header:
        yield "cudnn", Layer.ONDISK, None, cuda.cudnn_header(libraries.header), "cudnn_version.h"
    nscq = loader.by_file_name(libraries, "libnvidia-nscq.so.2")
    if isinstance(nscq, str) and re.match(r"[0-9]{3,}\.", nscq):
        yield "nscq", Layer.LIBRARY, None, nscq, "libnvidia-nscq.so.2"
    for component in ("aws-ofi-nccl", "nccl-gib", "nccl-sharp"):
        yield component, Layer.LIBRARY, None, _plugin(parsed, component), "libnccl-net*.so"
    yield "hpcx", Layer.ONDISK, None, communication.hpcx(parsed.files), "/opt/hpcx*/VERSION"
    installer = communication.efa_installer(parsed.files)
    yield "efa-installer", Layer.ONDISK, None, installer, "/opt/amazon/efa_installed_packages"


def _runtime(parsed: Parsed) -> Raw:
    """Of the newest major that is there; each major is a library of its own name."""
    if isinstance(parsed.libraries, Unreadable):
        return parsed.libraries
    names = [name for name in parsed.libraries.paths if name.startswith("libcudart.so.")]
    newest = max(names, key=texts.version_key, default=None)
    return loader.by_file_name(parsed.libraries, newest) if newest is not None else ABSENT


def _compat(parsed: Parsed) -> Raw:
    """The driver's library that a program gets, where it is one of forward compatibility: below ``compat``."""
    if isinstance(parsed.libraries, Unreadable):
        return parsed.libraries
    path = parsed.libraries.first("libcuda.so.1")
    return loader.by_file_name(parsed.libraries, "libcuda.so.1") if path and "/compat/" in path else ABSENT


def _rdma_core(parsed: Parsed) -> Raw:
    """libibverbs.so.1.14.50.0 is of rdma-core 50.0: its build puts the package's version behind the ABI's."""
    found = loader.by_file_name(parsed.libraries, "libibverbs.so.1")
    if not isinstance(found, str):
        return found
    parts = found.split(".")
    return ".".join(parts[2:]) if len(parts) >= 4 else Unreadable(f"libibverbs.so.{found} names no package")


def _libfabric(parsed: Parsed, first: str, second: str) -> Raw:
    found = communication.libfabric(parsed.record("libfabric"))
    if isinstance(found, (Absent, Unreadable)):
        return found
    return found.get(first) or found[second]


def _plugin(parsed: Parsed, component: str) -> Raw:
    if isinstance(parsed.libraries, Unreadable):
        return parsed.libraries
    known = collectives.plugin_versions(parsed.libraries)
    if component in known:
        return known[component]
    nameless = [name for name in parsed.libraries.paths if re.match(r"lib[nr]ccl-net", name)]
    if nameless and not known:
        return Unreadable(f"{', '.join(sorted(nameless))} carries no version that is known")
    return ABSENT


def _bound(libraries: loader.Libraries) -> Iterator[tuple[str, str]]:
    """The oldest libfabric and GDRCopy beside which the plugin and UCX can be loaded, by what they bind."""
    node = collectives.libfabric_node(libraries)
    release = communication.libfabric_of(node) if node else node
    if release is not None:
        yield "aws-ofi-nccl.libfabric", release
    gdrcopy = communication.ucx_gdrcopy(libraries)
    if gdrcopy is not None:
        yield "ucx.gdrcopy", gdrcopy


def attributes(parsed: Parsed) -> Iterator[tuple[str, str]]:
    """Files behind the facts, and the version nodes that plugins need."""
    libraries = parsed.libraries
    if parsed.nccl_file:
        yield "nccl.file", parsed.nccl_file
    copies = loader.copies(libraries, "libnccl.so.2")
    if copies:
        yield "nccl.copies", ",".join(copies)
    for text in loader.strings_of(libraries, parsed.nccl_file):
        found = collectives.nccl_string(text)
        if not isinstance(found, Unreadable) and "cuda" in found:
            yield "nccl.cuda", found["cuda"]
            break
    _, rccl = collectives.library(libraries, "librccl.so.1")
    if rccl:
        yield "rccl.file", rccl
    if isinstance(libraries, Unreadable):
        return
    # Empty: looked for and not there.
    yield "cudnn.libraries", texts.distinct(loader.sublibraries(libraries, "libcudnn").values())
    yield "nccl.plugins.needs", ",".join(collectives.plugin_needs(libraries))
    yield from _bound(libraries)
    for key, name, prefix in (
        ("libfabric.nodes", "libfabric.so.1", "FABRIC"),
        ("rdma-core.nodes", "libibverbs.so.1", "IBVERBS"),
        ("mlx5.nodes", "libmlx5.so.1", "MLX5"),
        ("efa.nodes", "libefa.so.1", "EFA"),
    ):
        node = loader.highest_node(loader.strings_of(libraries, libraries.first(name)), prefix)
        if node is not None:
            yield key, node
