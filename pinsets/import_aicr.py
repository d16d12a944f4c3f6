"""NVIDIA AICR recipes → a draft: an overlay with the chain of its bases, or a resolved recipe. Pure.

Components are charts with a version, constraints mostly open (``>= 6.8``), the driver
stands in the values of the GPU operator. Source of the form: NVIDIA/aicr, recipes/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pinsets.drafts import Draft
from pinsets.facts import Layer

__all__ = ["draft", "fits"]

Read = Callable[[str], Mapping[str, Any] | None]
"""A file by its path below the folder of recipes, parsed; None when it is not there."""

_CHARTS: Final[Mapping[str, str]] = {
    "gpu-operator": "gpu-operator",
    "network-operator": "network-operator",
    "nvidia-dra-driver-gpu": "dra-driver",
    "dra-driver-nvidia-gpu": "dra-driver",
    "nfd": "nfd",
}
_VALUES: Final[tuple[tuple[tuple[str, ...], str, tuple[Layer, ...] | None], ...]] = (
    (("driver", "version"), "driver", (Layer.RUNNING,)),
    (("toolkit", "version"), "container-toolkit", (Layer.ONDISK,)),
    (("dcgm", "version"), "dcgm", (Layer.RUNNING,)),
    (("dcgmExporter", "version"), "dcgm-exporter", (Layer.CONTAINER,)),
    (("devicePlugin", "version"), "device-plugin", None),
    (("migManager", "version"), "mig-manager", None),
    (("gds", "version"), "gds", (Layer.RUNNING,)),
    (("gdrcopy", "version"), "gdrdrv", (Layer.RUNNING,)),
)
"""Where the GPU operator's values name a version. It installs by containers: no package of the host carries them."""
_OWN_VALUES: Final = "components/gpu-operator/values.yaml"
DEPTH: Final = 16
"""Bases of one recipe; AICR's longest chain is five."""


def fits(data: Any) -> bool:
    """Whether it looks like a recipe."""
    return isinstance(data, dict) and data.get("kind") in ("RecipeMetadata", "RecipeResult", "Recipe")


@dataclass(slots=True)
class _Chart:
    """A component of a recipe with what its bases say of it, the nearest value first."""

    version: tuple[str, str] | None = None
    """With the file that says so."""
    values_file: str | None = None
    overrides: list[tuple[Mapping[str, Any], str]] = field(default_factory=list)

    def take(self, entry: Mapping[str, Any], origin: str) -> None:
        if self.version is None and isinstance(version := entry.get("version"), str):
            self.version = (version, origin)
        if self.values_file is None and isinstance(path := entry.get("valuesFile"), str):
            self.values_file = path
        if isinstance(overrides := entry.get("overrides"), dict):
            self.overrides.append((overrides, f"{origin}: overrides"))


@dataclass(slots=True)
class _Merged:
    """A recipe with what it inherits."""

    charts: dict[str, _Chart] = field(default_factory=dict)
    constraints: dict[str, tuple[str, str]] = field(default_factory=dict)
    chain: list[str] = field(default_factory=list)

    def take(self, spec: Mapping[str, Any], origin: str) -> None:
        for entry in _list(spec, "componentRefs"):
            self.charts.setdefault(str(entry.get("name")), _Chart()).take(entry, origin)
        for constraint in _list(spec, "constraints"):
            self.constraints.setdefault(str(constraint.get("name")), (str(constraint.get("value")), origin))


def _list(spec: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [entry for entry in spec.get(key) or () if isinstance(entry, dict)]


def draft(data: Mapping[str, Any], read: Read, place: str) -> Draft:
    """The versions that a recipe names exactly. Raises ValueError for a base that is missing or goes in a circle."""
    merged = _Merged()
    if data["kind"] == "RecipeMetadata":
        _inherit(data, read, merged)
    else:
        merged.chain = [str((data.get("metadata") or {}).get("name") or place)]
        merged.take(data, place)
    found = Draft(f"NVIDIA/aicr recipe {' ← '.join(merged.chain)}")
    _operating_system(found, merged)
    for name, component in _CHARTS.items():
        chart = merged.charts.get(name)
        if chart is not None and chart.version is not None:
            version, origin = chart.version
            found.add(component, re.sub(r"^v(?=\d)", "", version), f"{origin}: componentRefs {name}")
    others = sorted(set(merged.charts) - set(_CHARTS))
    if others:
        found.leave(", ".join(others), "the registry has no such component")
    if (operator := merged.charts.get("gpu-operator")) is not None:
        _operator(found, operator, read)
    return found


def _inherit(data: Mapping[str, Any], read: Read, merged: _Merged) -> None:
    current: Mapping[str, Any] | None = data
    name = str((data.get("metadata") or {}).get("name", "recipe"))
    while current is not None:
        if name in merged.chain:
            raise ValueError(f"`base` goes round in a circle: {' → '.join((*merged.chain, name))}")
        if len(merged.chain) == DEPTH:
            raise ValueError(f"more than {DEPTH} bases: {' → '.join(merged.chain)}")
        merged.chain.append(name)
        spec = current.get("spec") or {}
        merged.take(spec, f"overlays/{name}.yaml")
        for mixin in spec.get("mixins") or ():
            part = read(f"mixins/{mixin}.yaml")
            if part is None:
                raise ValueError(f"mixin `{mixin}` of {name} is not there: give the file inside its folder of recipes")
            merged.take(part.get("spec") or {}, f"mixins/{mixin}.yaml")
        base = spec.get("base") or ("base" if name != "base" else None)
        current = read(f"overlays/{base}.yaml") if base else None
        if base and current is None and spec.get("base"):
            raise ValueError(f"base `{base}` of {name} is not there: give the file inside its folder of recipes")
        name = str(base)


def _operating_system(found: Draft, merged: _Merged) -> None:
    ids = {key: merged.constraints.get(f"OS.release.{key}") for key in ("ID", "VERSION_ID")}
    both = [_exact(value[0]) for value in ids.values() if value is not None]
    exact = len(both) == 2 and all(both)
    if exact:
        found.add("os", f"{both[0]}-{both[1]}", f"{merged.constraints['OS.release.ID'][1]}: constraints OS.release")
    for name, (value, origin) in sorted(merged.constraints.items()):
        if not (exact and name in ("OS.release.ID", "OS.release.VERSION_ID")):
            found.leave(f"{name} {value}", f"a condition for the whole machine, no version of a component ({origin})")


def _exact(value: str) -> str | None:
    bare = re.sub(r"^==?\s*", "", value.strip())
    return None if re.match(r"[<>!~^]", bare) else bare


def _operator(found: Draft, chart: _Chart, read: Read) -> None:
    layered = list(chart.overrides)
    # A file that an overlay names lies over the chart's own one, and does not replace it.
    named = [chart.values_file] if chart.values_file is not None else []
    for path in dict.fromkeys((*named, _OWN_VALUES)):
        if (values := read(path)) is not None:
            layered.append((values, path))
        elif path in named:
            found.leave("values of the GPU operator", f"{path} is not there: the driver's version stands in it")
    for keys, component, layers in _VALUES:
        for values, source in layered:
            if isinstance(value := _at(values, keys), str):
                found.add(component, re.sub(r"^v(?=\d)", "", value), f"{source}: {'.'.join(keys)}", layers=layers)
                break
    for values, source in layered:
        if isinstance(wanted := _at(values, ("driver", "useOpenKernelModules")), bool):
            where = f"{source}: driver.useOpenKernelModules"
            found.add("driver.flavour", "open" if wanted else "proprietary", where, layers=(Layer.RUNNING,))
            break


def _at(values: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values
