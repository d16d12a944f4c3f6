"""A small checkout whose tools build in a second, and a real Go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.base import settings as settings_module
from lockstep.base.programs import toolchain

DATA = Path(__file__).parents[1] / "data" / "tools"


@pytest.fixture(scope="session")
def go(checkout: Path) -> toolchain.Go:
    """The Go that `lockstep tools build` would use; never installed for a test's sake."""
    found, reason = toolchain.go_on_path()
    if found is not None:
        return found
    folder = toolchain.wheel_folder(checkout / toolchain.GO_WHEEL, settings_module.load().cache)
    if not folder.is_dir():
        pytest.skip(f"{reason}; run lockstep tools build")
    return toolchain.find_go(checkout, settings_module.load().cache, print)


@pytest.fixture
def small(tmp_path: Path, checkout: Path) -> settings_module.Settings:
    """A checkout of its own around tests/data/tools, with an empty cache."""
    root = tmp_path / "checkout"
    (root / "inventory").mkdir(parents=True)
    (root / "Pulumi.yaml").write_text("name: small\n")
    shutil.copytree(DATA, root / "tools")
    shutil.copytree(checkout / "requirements", root / "requirements")
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "LOCKSTEP_LABS": str(tmp_path / "labs")}
    return settings_module.load(environ, root)


Build = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def compiled(go: toolchain.Go) -> str:
    """The user's compiler cache: it holds the standard library, a second instead of a minute."""
    return subprocess.run([go.path, "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def build(small: settings_module.Settings, go: toolchain.Go, compiled: str) -> Build:
    """Starts `lockstep tools build` on the small checkout in a process of its own."""

    def start(*names: str, prefix: tuple[str, ...] = (), **environ: str) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "GOCACHE": compiled,
            "PATH": f"{go.path.parent}:{os.environ['PATH']}",
            "LOCKSTEP_ROOT": str(small.checkout),
            "XDG_CACHE_HOME": str(small.cache.parent),
            **environ,
        }
        command = [*prefix, sys.executable, "-u", "-m", "lockstep.cli.main", "tools", "build", *names]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return start
