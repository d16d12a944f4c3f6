"""One family from its committed module files into the cache: locked, staged, renamed into place."""

from __future__ import annotations

import enum
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lockstep.base import errors
from lockstep.base.programs import commands, failures, recipes, toolchain

__all__ = ["Built", "Progress", "Stage", "built_folders", "make", "place"]


class Stage(enum.StrEnum):
    """What a build is doing."""

    WAITING = "waiting"
    PREPARING = "preparing"
    COMPILING = "compiling"
    LINKING = "linking"
    BUILT = "built"
    FOUND = "found"
    OFFICIAL = "official"


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a build, for a display."""

    module: str
    number: int
    """1-based place among the modules of this call."""
    of: int
    stage: Stage
    text: str = ""
    """The package or module at hand, or a sentence."""
    packages: int = 0
    """Compiled so far; what the compiler's cache held is not counted."""
    of_packages: int = 0
    """All packages of the program, an upper bound of `packages`; 0 while unknown."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Built:
    """A family in the cache."""

    module: str
    folder: Path
    seconds: float
    """0 when it was there already."""


def place(cache: Path, module: str, mark: str, go_version: str) -> Path:
    """Folder of a result; ``mark`` is the family's `recipes.digest`."""
    return cache / "tools" / module / f"{mark}-{go_version}"


def built_folders(cache: Path, module: str, mark: str) -> list[Path]:
    """Whole results of these sources by any Go version, newest first."""
    found = [path for path in (cache / "tools" / module).glob(f"{mark}-go*") if (path / recipes.NOTE).is_file()]
    return sorted(found, key=lambda path: (path / recipes.NOTE).stat().st_mtime, reverse=True)


def make(
    family: recipes.Family,
    tools: Path,
    cache: Path,
    go: toolchain.Go,
    tell: Callable[[Progress], None],
    progress: Progress,
    *,
    mark: str,
    companions: Sequence[Path] = (),
) -> Built:
    """Build ``family`` unless this very result is there.

    ``mark`` is its `recipes.digest`, ``companions`` are files to lay beside the program.
    Raises `errors.EngineError` naming the module, the last lines and the remedy.
    """
    final = place(cache, family.module, mark, go.version)
    home = final.parent
    command = f"lockstep tools build {family.module}"
    try:
        with toolchain.lock(
            home / ".lock",
            lambda: tell(replace(progress, stage=Stage.WAITING, text="another build of it is running; waiting for it")),
        ):
            if (final / recipes.NOTE).is_file():
                tell(replace(progress, stage=Stage.FOUND, text=str(final)))
                return Built(family.module, final, 0.0)
            for stale in [*home.glob(".building-*"), final]:
                # Only a killed build leaves one: we hold the lock.
                shutil.rmtree(stale, ignore_errors=True)
            staging = home / f".building-{os.getpid()}-{time.time_ns()}"
            try:
                seconds = _Build(family, tools, staging, go, tell, progress, command).run(companions)
                (staging / "out").rename(final)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise failures.disk_full(error, f"building {family.module}", command, [cache]) from error
    tell(replace(progress, stage=Stage.BUILT, text=str(final), seconds=seconds))
    return Built(family.module, final, seconds)


@dataclass(slots=True)
class _Build:
    """The steps of one build; holds what they share."""

    family: recipes.Family
    tools: Path
    staging: Path
    go: toolchain.Go
    tell: Callable[[Progress], None]
    progress: Progress
    command: str
    lines: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def run(self, companions: Sequence[Path]) -> float:
        """Seconds it took; the result lies in ``staging/out``."""
        out = self.staging / "out"
        out.mkdir(parents=True)
        source = self._stage(self.family.module)
        for extra in self.family.files:
            if extra.embed:
                self._take(extra, source)
        packages = self._list(source)
        first, *others = self.family.programs
        binary = out / first
        self._compile(source, binary, packages)
        for name in others:
            (out / name).symlink_to(binary.name)
        for extra in self.family.files:
            if not extra.embed:
                self._take(extra, out)
        for companion in companions:
            _lay_beside(companion, out)
        seconds = time.monotonic() - self.started
        note = {
            "module": self.family.module,
            "by": self.go.version,
            "seconds": round(seconds, 1),
            "packages": len(packages),
            "variables": recipes.variables(self.tools, self.family),
        }
        (out / recipes.NOTE).write_text(json.dumps(note, indent=2) + "\n")
        return seconds

    def _stage(self, module: str) -> Path:
        """A copy of the module's own files: the checkout stays untouched, and two checkouts never meet."""
        folder = self.staging / "source" / module
        folder.mkdir(parents=True, exist_ok=True)
        for path in (self.tools / module).iterdir():
            if path.name in ("go.mod", "go.sum") or path.suffix == ".go":
                shutil.copyfile(path, folder / path.name)
        return folder

    def _take(self, extra: recipes.Extra, target: Path) -> None:
        """Copy a file or folder out of a pinned module."""
        holder = self._stage(extra.holder or self.family.module)
        answer: list[str] = []
        self._go(["mod", "download", "-json", extra.module], holder, answer.append)
        origin = Path(json.loads("\n".join(answer[answer.index("{") :]))["Dir"]) / extra.path
        place = target / (extra.name or origin.name)
        if origin.is_dir():
            shutil.copytree(origin, place, copy_function=shutil.copyfile)
            for folder, _, _ in os.walk(place):
                # The module cache is read-only; what may never be removed again is a trap.
                Path(folder).chmod(0o755)
        else:
            shutil.copyfile(origin, place)
            place.chmod(0o755 if extra.executable else 0o644)

    def _list(self, source: Path) -> list[str]:
        """Import paths of all packages, the program's own last. Downloads what is missing."""
        packages: list[str] = []
        stage = replace(self.progress, stage=Stage.PREPARING)
        text = "reading the list of packages"

        def line(said: str) -> None:
            nonlocal text
            if said.startswith("package "):
                packages.append(said.removeprefix("package "))
            elif said.startswith("go: downloading "):
                text = said.removeprefix("go: ")
            else:
                self.lines.append(said)
            beat()

        def beat() -> None:
            self.tell(replace(stage, text=text, seconds=time.monotonic() - self.started))

        beat()
        # Errors and packages come out of one pipe; the word tells them apart.
        form = ["-f", "package {{.ImportPath}}"]
        self._go(["list", "-mod=readonly", *self._tags(), "-deps", *form, self.family.package], source, line, beat)
        return packages

    def _compile(self, source: Path, binary: Path, packages: list[str]) -> None:
        known = set(packages)
        own = packages[-1]
        now = replace(self.progress, stage=Stage.COMPILING, of_packages=len(packages))

        def line(said: str) -> None:
            nonlocal now
            if said in known:
                stage = Stage.LINKING if said == own else Stage.COMPILING
                now = replace(now, stage=stage, text=said, packages=now.packages + 1)
            else:
                self.lines.append(said)
            beat()

        def beat() -> None:
            self.tell(replace(now, seconds=time.monotonic() - self.started))

        flags = ["-s", "-w"]
        for name, value in recipes.variables(self.tools, self.family).items():
            flags += ["-X", f"{name}={value}"]
        words = ["build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", *self._tags()]
        self._go([*words, "-ldflags", " ".join(flags), "-o", str(binary), self.family.package], source, line, beat)

    def _tags(self) -> list[str]:
        return ["-tags", ",".join(self.family.tags)] if self.family.tags else []

    def _go(
        self, words: list[str], cwd: Path, line: Callable[[str], None], beat: Callable[[], None] = lambda: None
    ) -> None:
        """One go command; its failure becomes the error of the build."""
        # The caller's GOFLAGS would change the result behind the digest's back.
        env = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
        heard: list[str] = []

        def hear(said: str) -> None:
            heard.append(said)
            line(said)

        try:
            status = commands.run([str(self.go.path), *words], cwd=cwd, env=env, line=hear, beat=beat)
        except FileNotFoundError as error:
            raise errors.EngineError(f"{self.go.path} is gone", hint=f"install Go, then: {self.command}") from error
        if status != 0:
            telling = self.lines or [text for text in heard if text.strip()]
            places = [self.staging, *[Path(text) for name in ("GOCACHE", "TMPDIR") if (text := os.environ.get(name))]]
            what = f"building {self.family.module} ({self.family.package})"
            raise failures.build_failed(what, telling, self.command, places=places)


def _lay_beside(origin: Path, folder: Path) -> None:
    """A second name of the same file; a copy where the file system has no such thing."""
    try:
        os.link(origin, folder / origin.name)
    except OSError:
        shutil.copy2(origin, folder / origin.name)
