"""The programs by name: where they are, what is missing, and how to make it."""

from __future__ import annotations

import contextlib
import enum
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.base import errors
from lockstep.base import settings as settings_module
from lockstep.base.programs import building, official, recipes, toolchain

__all__ = ["Program", "State", "build", "estimate_seconds", "find", "find_data", "link", "missing", "status"]

LINKED = ("pulumi", official.LANGUAGE_HOST, "kubectl")
"""What people call by name in the activated environment."""
LANGUAGE_EXEC = "pulumi-language-python-exec"
"""The Python file that the language host starts; it must lie in the host's folder."""


class State(enum.StrEnum):
    """Where a program comes from."""

    OFFICIAL = "official"
    BUILT = "built"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Program:
    """One program's state."""

    name: str
    module: str
    state: State
    path: Path | None
    note: str
    """The version or Go version it was built with; for a missing one why PATH's does not serve."""
    seconds: int
    """Estimate of a cold build of its module, two cores."""


@dataclass(frozen=True, slots=True)
class _Places:
    checkout: Path
    tools: Path
    cache: Path
    registry: recipes.Registry


def _places(settings: settings_module.Settings | None) -> _Places:
    known = settings if settings is not None else settings_module.load()
    checkout = known.need_checkout("tools")
    return _Places(checkout, checkout / "tools", known.cache, recipes.load(checkout / "tools"))


def find(name: str, settings: settings_module.Settings | None = None) -> Path:
    """Path of the executable ``name``: an official pulumi or kubectl of PATH, else the built one.

    Raises `errors.EngineError` with the command that makes it, `errors.InputError` for a name
    that the registry does not know or where there is no checkout.
    """
    places = _places(settings)
    found = _official(name, places).path
    if found is not None:
        return found
    return _built(name, places)


def find_data(name: str, settings: settings_module.Settings | None = None) -> Path:
    """Path of a file or folder that was kept beside a built program, for example ``kwok-stages``. Raises as `find`."""
    return _built(name, _places(settings))


def status(settings: settings_module.Settings | None = None) -> list[Program]:
    """Every program of the registry, in build order; builds nothing."""
    places = _places(settings)
    rows = []
    for family in places.registry.families:
        for name in family.programs:
            rows.append(_program(name, family.module, family.seconds, places))
    for wheel in places.registry.wheels:
        rows.append(_program(wheel.programs[0], wheel.module, wheel.seconds, places))
    return rows


def _program(name: str, module: str, seconds: int, places: _Places) -> Program:
    verdict = _official(name, places)
    if verdict.path is not None:
        return Program(name, module, State.OFFICIAL, verdict.path, verdict.version, seconds)
    try:
        path = _built(name, places)
    except errors.EngineError:
        return Program(name, module, State.MISSING, None, verdict.reason, seconds)
    note = next(folder / recipes.NOTE for folder in path.parents if (folder / recipes.NOTE).is_file())
    by = str(json.loads(note.read_text())["by"])
    old = not _current(places.registry.family_of(name), places).exists()
    return Program(name, module, State.BUILT, path, f"{by}, not the Go in use now" if old else by, seconds)


def missing(names: Sequence[str] = (), settings: settings_module.Settings | None = None) -> list[str]:
    """Modules that `build` would make for ``names`` (none: all), in build order."""
    places = _places(settings)
    return [
        family.module
        for family in places.registry.needed(names)
        if _official(family.programs[0], places).path is None and not _current(family, places).exists()
    ]


def estimate_seconds(modules: Sequence[str], settings: settings_module.Settings | None = None) -> int:
    """Cold build of ``modules`` one after the other on two cores."""
    registry = _places(settings).registry
    return sum(registry.family_of(module).seconds for module in modules)


def build(
    names: Sequence[str] = (),
    progress: Callable[[building.Progress], None] = lambda _: None,
    settings: settings_module.Settings | None = None,
) -> list[building.Built]:
    """Make what is missing of ``names`` (none: all), one after the other, first what is needed first.

    ``progress`` hears every step. Raises `errors.EngineError` on the first module that fails:
    module, last lines, remedy. What was built until then stays.
    """
    places = _places(settings)
    families = places.registry.needed(names)
    made = []
    now = building.Progress("go", 0, len(families), building.Stage.PREPARING)
    go: toolchain.Go | None = None

    def say(text: str) -> None:
        progress(replace(now, stage=building.Stage.PREPARING, text=text))

    for number, family in enumerate(families, 1):
        now = building.Progress(family.module, number, len(families), building.Stage.PREPARING)
        verdict = _official(family.programs[0], places)
        if verdict.path is not None:
            progress(replace(now, stage=building.Stage.OFFICIAL, text=str(verdict.path)))
        elif _current(family, places).exists():
            folder = _current(family, places).parent
            progress(replace(now, stage=building.Stage.FOUND, text=str(folder)))
            made.append(building.Built(family.module, folder, 0.0))
        elif isinstance(family, recipes.Wheel):
            say(f"installing {family.requirements}")
            folder = toolchain.install_wheel(places.checkout / family.requirements, places.cache)
            progress(replace(now, stage=building.Stage.BUILT, text=str(folder)))
            made.append(building.Built(family.module, folder, 0.0))
        else:
            go = go or toolchain.find_go(places.checkout, places.cache, say)
            mark = recipes.digest(places.tools, places.registry, family)
            beside = [_made(name, places.registry.family_of(name), places) for name in family.companions]
            made.append(
                building.make(family, places.tools, places.cache, go, progress, now, mark=mark, companions=beside)
            )
    return made


def _official(name: str, places: _Places) -> official.Verdict:
    """What PATH offers for ``name``; nothing for programs that are always our own build."""
    if name == "pulumi":
        return official.pulumi()
    if name == official.LANGUAGE_HOST:
        verdict = official.pulumi()
        # One version of the pair: a host of another origin than its CLI is nobody's tested combination.
        return replace(verdict, path=official.language_host(verdict.path)) if verdict.path is not None else verdict
    if name == "kubectl":
        version = recipes.module_version(places.tools / "kubernetes" / "go.mod", "k8s.io/kubernetes")
        return official.kubectl(int(version.split(".")[1]))
    return official.Verdict(None, "", "")


def _current(family: recipes.Family | recipes.Wheel, places: _Places) -> Path:
    """The note of the result that `build` would make now; it exists when that is done."""
    if isinstance(family, recipes.Wheel):
        folder = toolchain.wheel_folder(places.checkout / family.requirements, places.cache)
    else:
        mark = recipes.digest(places.tools, places.registry, family)
        version = toolchain.version_in_use(places.checkout)
        folder = building.place(places.cache, family.module, mark, version)
    return folder / recipes.NOTE


def _built(name: str, places: _Places) -> Path:
    """``name`` beside the program that wants it there, else where it was made."""
    home, maker = places.registry.home_of(name), places.registry.family_of(name)
    if home is not maker:
        with contextlib.suppress(errors.EngineError):
            return _made(name, home, places)
    return _made(name, maker, places)


def _made(name: str, family: recipes.Family | recipes.Wheel, places: _Places) -> Path:
    """``name`` in the result of ``family``."""
    if isinstance(family, recipes.Wheel):
        place = toolchain.wheel_folder(places.checkout / family.requirements, places.cache) / family.path
        found = [place] if place.is_file() else []
    else:
        mark = recipes.digest(places.tools, places.registry, family)
        folders = building.built_folders(places.cache, family.module, mark)
        found = [folder / name for folder in folders if (folder / name).exists()]
    if not found:
        minutes = max(1, round(family.seconds / 60))
        raise errors.EngineError(
            f"{name} is not built yet",
            hint=f"lockstep tools build {family.module} (about {minutes} min when nothing is cached)",
        )
    return found[0]


def link(folder: Path, settings: settings_module.Settings | None = None) -> list[Path]:
    """Links to pulumi, its language host and kubectl in ``folder``, replaced when they point elsewhere.

    A program of PATH that serves as it is gets none: it is on PATH.
    """
    places = _places(settings)
    made = []
    for name in (*LINKED, LANGUAGE_EXEC):
        place = folder / name
        host = official.LANGUAGE_HOST if name == LANGUAGE_EXEC else name
        if _official(host, places).path is not None:
            if place.is_symlink():
                place.unlink()
            continue
        target = _built(name, places)
        if not (place.is_symlink() and place.readlink() == target):
            fresh = folder / f".{name}.new"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(target)
            fresh.replace(place)
        made.append(place)
    return made
