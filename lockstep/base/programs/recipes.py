"""`tools/programs.yaml` → `Family` values: what to build, from what, and the digest that names the result."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from lockstep.base import documents, errors, issues

__all__ = ["NOTE", "REGISTRY", "Extra", "Family", "Registry", "Wheel", "digest", "load", "module_version", "variables"]

REGISTRY = "programs.yaml"
NOTE = "build.json"
"""Written last into a result: what it was made from, and the sign that a program is ours."""
_VERSION_OF = re.compile(r"\{([^{}]+)\}")


class Extra(documents.Model):
    """A file or folder taken from a pinned module at build time."""

    module: str
    path: str
    holder: Annotated[str | None, Field(alias="from", description="Folder in tools/ whose go.mod pins the module.")] = (
        None
    )
    name: Annotated[str | None, Field(alias="as", description="Name beside the built program.")] = None
    embed: bool = False
    executable: bool = False

    @model_validator(mode="after")
    def _one_place(self) -> Extra:
        if self.embed == (self.name is not None):
            raise ValueError("give either `as: NAME` or `embed: true`")
        return self


class Family(documents.Model):
    """One Go module and the programs that come out of it."""

    module: str
    package: str
    programs: Annotated[tuple[str, ...], Field(min_length=1)]
    tags: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    files: tuple[Extra, ...] = ()
    companions: Annotated[
        tuple[str, ...], Field(description="Programs and data of earlier families, laid beside this one's.")
    ] = ()
    seconds: Annotated[int, Field(gt=0, description="Cold build on two cores, downloads included.")]
    memory: Annotated[float, Field(gt=0, description="Peak of the build, GB.")]

    @property
    def data(self) -> tuple[str, ...]:
        """Names of what lies beside the programs."""
        return tuple(extra.name for extra in self.files if extra.name is not None)


class Wheel(documents.Model):
    """A program that a wheel carries."""

    module: str
    programs: Annotated[tuple[str], Field(description="The one program.")]
    requirements: Annotated[str, Field(description="Hashed requirement file, from the checkout's root.")]
    path: Annotated[str, Field(description="The program inside the installed wheel.")]
    seconds: Annotated[int, Field(gt=0)]
    data: tuple[str, ...] = ()


class Registry(documents.Model):
    """All families, in the order in which they are needed, and the wheels."""

    families: tuple[Family, ...]
    wheels: tuple[Wheel, ...] = ()

    @model_validator(mode="after")
    def _companions_come_first(self) -> Registry:
        made: set[str] = set()
        for family in self.families:
            if late := [name for name in family.companions if name not in made]:
                raise ValueError(f"{family.module}: {late[0]} is made by no family before it")
            made |= {*family.programs, *family.data}
        return self

    @property
    def everything(self) -> tuple[Family | Wheel, ...]:
        """Families and wheels in build order."""
        return (*self.families, *self.wheels)

    def family_of(self, name: str) -> Family | Wheel:
        """The family of a program, a data name or a module folder: where it is made.

        Raises `errors.InputError` naming what is known.
        """
        for family in self.everything:
            if name == family.module or name in family.programs or name in family.data:
                return family
        known = ", ".join(program for family in self.everything for program in family.programs)
        raise errors.InputError(f"no program is called {name}", place="tools", hint=f"known: {known}")

    def home_of(self, name: str) -> Family | Wheel:
        """The family in whose result ``name`` is looked for: the one that has it beside its own, else its maker."""
        for family in self.families:
            if name in family.companions:
                return family
        return self.family_of(name)

    def needed(self, names: Iterable[str]) -> tuple[Family | Wheel, ...]:
        """The families to build for ``names`` (none: all), with those of their companions, in build order."""
        wanted: set[str] = set()
        for name in names:
            family = self.family_of(name)
            companions = family.companions if isinstance(family, Family) else ()
            wanted |= {family.module, *(self.family_of(companion).module for companion in companions)}
        return tuple(family for family in self.everything if not wanted or family.module in wanted)


def load(tools: Path) -> Registry:
    """The registry of the folder ``tools``. Raises `errors.InputError` with every mistake in it."""
    try:
        mtime = (tools / REGISTRY).stat().st_mtime_ns
    except OSError as error:
        raise errors.InputError(f"cannot read {tools / REGISTRY}: {error.strerror}") from error
    return _load(tools, mtime)


@functools.lru_cache(maxsize=8)
def _load(tools: Path, _mtime: int) -> Registry:
    report = issues.Report()
    document = documents.load(tools / REGISTRY, report, shown=f"{tools.name}/{REGISTRY}")
    registry = document.model(Registry, report) if document is not None else None
    report.raise_if_errors(f"{tools.name}/{REGISTRY}")
    assert registry is not None  # noqa: S101 - the report would have raised
    return registry


def module_version(go_mod: Path, module: str) -> str:
    """Version of ``module`` as go.mod requires it. Raises `errors.InputError` where it does not."""
    try:
        text = go_mod.read_text()
    except OSError as error:
        raise errors.InputError(f"cannot read {go_mod}: {error.strerror}") from error
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)}\s+(v\S+)", text, re.MULTILINE)
    if found is None:
        raise errors.InputError(f"{module} is not required", place=str(go_mod))
    return found[1]


def variables(tools: Path, family: Family) -> dict[str, str]:
    """The linker's variables with every ``{module}`` replaced by its version."""
    go_mod = tools / family.module / "go.mod"

    def version(match: re.Match[str]) -> str:
        return module_version(go_mod, match[1])

    return {name: _VERSION_OF.sub(version, text) for name, text in family.variables.items()}


def digest(tools: Path, registry: Registry, family: Family) -> str:
    """16 hex characters over everything but the Go version that decides the result.

    Module files, the registry's entry (time and memory left out), the go.mod of modules that
    files are taken from, the digests of companions, and the machine's architecture. Raises `errors.InputError` when a
    module file is missing.
    """
    folder = tools / family.module
    total = hashlib.sha256()
    entry = family.model_dump(mode="json", exclude={"seconds", "memory"})
    total.update(json.dumps([entry, platform.machine()], sort_keys=True).encode())
    for name in ("go.mod", "go.sum", *sorted(path.name for path in folder.glob("*.go"))):
        try:
            total.update(f"\0{name}\0".encode() + (folder / name).read_bytes())
        except OSError as error:
            raise errors.InputError(
                f"cannot read {folder / name}: {error.strerror}", hint="go.mod and go.sum are committed: git checkout"
            ) from error
    for extra in family.files:
        if extra.holder is not None:
            total.update(module_version(tools / extra.holder / "go.mod", extra.module).encode())
    for name in family.companions:
        maker = registry.family_of(name)
        assert isinstance(maker, Family)  # noqa: S101 - `Registry` holds it
        total.update(digest(tools, registry, maker).encode())
    return total.hexdigest()[:16]
