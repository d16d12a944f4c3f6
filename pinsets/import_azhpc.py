"""AzHPC's ``versions.json`` → a draft. Pure.

The file is a tree: thing → OS → architecture → kind of machine → GPU, each level
optional, ``common`` for what holds everywhere; the deepest entry that fits wins.
Source of the form: Azure/azhpc-images, versions.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pinsets.drafts import Draft
from pinsets.facts import Layer

__all__ = ["draft", "fits"]

_THINGS: Final[tuple[tuple[str, str, str | None], ...]] = (
    ("driver", "nvidia", "driver"),
    ("fabricmanager", "nvidia", "fabricmanager"),
    ("imex", "nvidia", "imex"),
    ("cuda", "cuda", "driver"),
    ("nccl", "nccl", None),
    ("dcgm", "dcgm", None),
    ("gdrcopy", "gdrcopy", None),
    ("doca", "doca", None),
    ("hpcx", "hpcx", None),
    ("libfabric", "libfabric", None),
    ("rdma-core", "rdma_core", None),
)
"""(component, thing, part of it)."""
_AMD: Final[tuple[tuple[str, str, str | None], ...]] = (
    ("rocm", "rocm", None),
    ("rccl", "rccl", None),
    ("doca", "doca", None),
    ("hpcx", "hpcx_amd", None),
    ("libfabric", "libfabric", None),
    ("rdma-core", "rdma_core", None),
)
_BUILT: Final[Mapping[str, tuple[Layer, ...]]] = {
    # The images install these from the vendor's archive or from source: no package of that name carries them.
    "driver": (Layer.RUNNING, Layer.ONDISK),
    "rdma-core": (Layer.LIBRARY,),
    "rccl": (Layer.LIBRARY,),
}


def fits(data: Any) -> bool:
    """Whether it looks like such a file."""
    return (
        isinstance(data, dict) and {"nvidia", "cuda"} <= set(data) and all(isinstance(v, dict) for v in data.values())
    )


def draft(data: Mapping[str, Any], select: Sequence[str], place: str) -> Draft:
    """The versions for one machine; ``select`` are the words of its path, such as ``ubuntu24.04 aarch64 baremetal_3p
    nvidia_gb200``. A word with ``amd`` in it takes the AMD side.

    Raises ValueError for a word that stands nowhere in the file, and where the selection
    gives nothing.
    """
    known = set(_keys(data))
    amd = any(word.startswith("amd_") for word in select)
    for word in select:
        if word not in known and not word.startswith("amd_"):
            raise ValueError(f"{word!r} stands nowhere in it")
    found = Draft(f"Azure/azhpc-images {place}" + (f", {' '.join(select)}" if select else ""))
    things = _AMD if amd else _THINGS
    for component, thing, part in things:
        tree = data.get(thing)
        entry = _deepest(tree, select, part) if isinstance(tree, dict) else None
        if entry is not None:
            path, leaf = entry
            where = ".".join((thing, *path, *((part,) if part else ())))
            _add(found, component, leaf, f"{place}: {where}")
    if not found.pins and not found.left_out:
        raise ValueError(f"it names nothing for {' '.join(select) or 'no selection'}")
    taken = {thing for _, thing, _ in (*_THINGS, *_AMD)}
    others = [
        thing for thing in sorted(set(data) - taken - {"note"}) if _deepest(data[thing], select, None) is not None
    ]
    if others:
        found.leave(", ".join(others), "the registry has no such component")
    return found


def _keys(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key
            yield from _keys(value)


def _deepest(tree: Any, select: Sequence[str], part: str | None) -> tuple[tuple[str, ...], Mapping[str, Any]] | None:
    """(path, leaf with a version) of the deepest entry on the way that ``select`` names, else of ``common``."""
    levels: list[tuple[tuple[str, ...], Any]] = []
    path: tuple[str, ...] = ()
    node = tree
    for word in select:
        if isinstance(node, dict) and word in node:
            node, path = node[word], (*path, word)
            levels.append((path, node))
    levels.insert(0, (("common",), tree.get("common") if isinstance(tree, dict) else None))
    for where, one in reversed(levels):
        leaf = one.get(part) if part is not None and isinstance(one, dict) else one
        if isinstance(leaf, dict) and isinstance(leaf.get("version"), str):
            return where, leaf
    return None


def _add(found: Draft, component: str, leaf: Mapping[str, Any], source: str) -> None:
    version = str(leaf["version"]).strip()
    layers = _BUILT.get(component)
    if component == "doca" and isinstance(leaf.get("url"), str):
        # The version of the package stands in its file's name only.
        whole = re.search(r"doca-host[_-](\d+\.\d+\.\d+-\d+)", leaf["url"])
        version = whole[1] if whole else version
    if component == "cuda" and version.count(".") < 2:
        found.leave(f"cuda {version}", f"a branch is no version ({source})")
        return
    bare = re.sub(r"^\d+:", "", version)
    if component not in ("doca", "rdma-core") and (match := re.fullmatch(r"(\d+(?:\.\d+)+)-\d[\w.]*", bare)):
        packaged = version if component in ("imex", "fabricmanager", "dcgm", "gdrcopy") else None
        found.add(component, match[1], source, package=packaged, layers=layers)
        return
    found.add(component, version, source, layers=layers)
