"""`lockstep tools` as a person sees it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from lockstep.base import settings as settings_module
from lockstep.cli import main

Build = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def here(small: settings_module.Settings, compiled: str, monkeypatch: pytest.MonkeyPatch) -> settings_module.Settings:
    """This process works on the small checkout."""
    monkeypatch.setenv("GOCACHE", compiled)
    monkeypatch.setenv("LOCKSTEP_ROOT", str(small.checkout))
    monkeypatch.setenv("XDG_CACHE_HOME", str(small.cache.parent))
    return small


def test_status_says_what_is_built_and_how_to_make_the_rest(
    here: settings_module.Settings, build: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    build("hello").communicate()
    assert main.run(["tools", "status", "--format", "json"]) == 0
    rows = {row["program"]: row for row in json.loads(capfd.readouterr().out)}
    assert rows["hello"]["state"] == rows["good-morning"]["state"] == "built"
    assert rows["hello"]["path"].startswith(str(here.cache / "tools" / "hello"))
    assert re.fullmatch(r"go1\.\d+\.\d+", rows["hello"]["note"])
    assert rows["greeter"] == {
        "program": "greeter",
        "module": "greeter",
        "state": "missing",
        "path": None,
        "note": "",
    }
    assert main.run(["tools", "status"]) == 0
    assert "lockstep tools build greeter" in capfd.readouterr().out


def test_an_unknown_format_is_bad_usage(here: settings_module.Settings, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["tools", "status", "--format", "xml"]) == 2
    assert "xml is not table or json" in capfd.readouterr().err


def test_an_unknown_name_is_bad_input(here: settings_module.Settings, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["tools", "build", "hallo"]) == 2
    assert "no program is called hallo" in capfd.readouterr().err


def test_outside_a_checkout_it_says_where_to_go(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str], capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LOCKSTEP_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main.run(["tools", "status"]) == 2
    assert "works inside a checkout" in capfd.readouterr().err


def test_on_a_terminal_one_line_moves_and_the_result_stays(here: settings_module.Settings, build: Build) -> None:
    # A real terminal on both ends of the program's output.
    leader, follower = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-m", "lockstep.cli.main", "tools", "build", "hello"]
    process = subprocess.Popen(command, env=env, stdout=follower, stderr=follower, stdin=subprocess.DEVNULL)
    os.close(follower)
    said = b""
    while True:
        try:
            chunk = os.read(leader, 65_536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        said += chunk
    os.close(leader)
    assert process.wait() == 0, said
    assert b"\x1b[2K" in said
    assert b"[1/1] hello  built in 0:" in said
