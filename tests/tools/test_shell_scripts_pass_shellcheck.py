"""Every shell script of the repository, read by shellcheck; what is let pass is let pass by file and number."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.debian

CHECKOUT = Path(__file__).parents[2]
FOLDERS = (".ci", "bringup", "lab", "requirements")
EVERYWHERE = ("SC1007", "SC1091")
"""`a= b=` empties two variables, as it is meant; what a script sources is not there where it is checked."""
PASSED = {
    "bringup/probe.sh": (
        "SC2154",
        "SC2148",
        "SC3045",
        "SC3067",
    ),  # a part of a script; checked whole with its other part
    "lab/guest/init": ("SC2154", "SC2012"),  # boot.env, which it sources, says them; kernels have plain names
    "lab/guest/supervisor": ("SC2181",),
    "lab/guest/tree/usr/bin/systemctl": ("SC2016",),  # the inner shell expands it
    "lab/guest/tree/usr/sbin/dkms": ("SC2046",),  # split on purpose
    "lab/stand_ins/kernel.prerm": ("SC2010",),
    "lab/stand_ins/nv-fabricmanager": ("SC2034",),  # `eval` uses it
}


def _scripts() -> list[str]:
    found = []
    for folder in FOLDERS:
        for path in (CHECKOUT / folder).rglob("*"):
            if path.is_file() and (path.suffix == ".sh" or _first(path).endswith((b"/sh", b"/bash"))):
                found.append(str(path.relative_to(CHECKOUT)))
    return sorted(found)


def _first(path: Path) -> bytes:
    with path.open("rb") as file:
        line = file.readline(80)
    return line.strip() if line.startswith(b"#!") else b""


SCRIPTS = _scripts()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_passes_shellcheck(script: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed (requirements/debian.txt)")
    words = ["--exclude", ",".join((*EVERYWHERE, *PASSED.get(script, ())))]
    done = subprocess.run(["shellcheck", *words, str(CHECKOUT / script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_nothing_is_let_pass_that_is_not_there() -> None:
    assert set(PASSED) <= set(SCRIPTS)
    assert len(SCRIPTS) > 20
