"""The plugin's process: started from anywhere, and gone when what started it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stacks import exports

WAIT_SECONDS = 30.0


@pytest.fixture
def wrapper(copied: Path) -> Path:
    """The program that the engine starts, in a checkout at a path with a blank."""
    return copied / "stacks" / "plugin" / "pulumi-resource-lockstep"


@contextmanager
def parent(plugin: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that starts a plugin and prints its pid, and then what the plugin prints."""
    script = '"$0" 127.0.0.1:1 & echo $!; wait'
    process = subprocess.Popen(
        ["sh", "-c", script, str(plugin)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def engine(wrapper: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Of our plugin."""
    with parent(wrapper, tmp_path) as process:
        yield process


def started(engine: subprocess.Popen[str]) -> int:
    """The plugin's pid, once it serves."""
    assert engine.stdout is not None
    pid = int(engine.stdout.readline())
    assert int(engine.stdout.readline()) > 0  # the port
    return pid


def gone(pid: int) -> bool:
    """Whether the process ends before the time is up."""
    limit = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < limit:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_it_prints_its_port_when_started_from_another_folder(engine: subprocess.Popen[str]) -> None:
    started(engine)


def test_it_ends_when_the_engine_is_killed(engine: subprocess.Popen[str]) -> None:
    pid = started(engine)
    engine.send_signal(signal.SIGKILL)
    assert gone(pid)


def test_it_ends_when_the_engine_asks_it_to(engine: subprocess.Popen[str]) -> None:
    pid = started(engine)
    os.kill(pid, signal.SIGTERM)
    assert engine.wait(WAIT_SECONDS) == 0


def test_without_an_environment_it_says_what_to_run(wrapper: Path, copied: Path) -> None:
    (copied / ".venv").unlink()
    done = subprocess.run([wrapper], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "run `make`" in done.stderr


@pytest.mark.engine
def test_the_kubernetes_plugin_that_we_built_ends_with_its_engine_too(tmp_path: Path) -> None:
    exports.place_kubernetes_plugin(tmp_path / "home")
    (plugin,) = (tmp_path / "home").rglob("pulumi-resource-kubernetes")
    with parent(plugin, tmp_path) as engine:
        pid = started(engine)
        engine.send_signal(signal.SIGKILL)
        engine.wait()
        assert gone(pid)


@pytest.mark.engine
def test_a_kubernetes_plugin_that_the_user_has_is_left_and_an_earlier_link_of_ours_is_not(tmp_path: Path) -> None:
    exports.place_kubernetes_plugin(tmp_path)
    (plugin,) = tmp_path.rglob("pulumi-resource-kubernetes")
    ours = plugin.read_bytes()
    plugin.write_bytes(b"\x7fELF of theirs")
    exports.place_kubernetes_plugin(tmp_path)
    assert plugin.read_bytes() == b"\x7fELF of theirs"
    plugin.unlink()
    plugin.symlink_to("/bin/true")
    exports.place_kubernetes_plugin(tmp_path)
    assert plugin.read_bytes() == ours
    assert not plugin.is_symlink()
