"""A running `lockstep audit --watch` that writes Prometheus text, and what its file says at each look."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

_DEVIATES = re.compile(r'lockstep_audit_node_deviates\{.*node="([^"]*)",verdict="([^"]*)"\} 1')
_PLACE = re.compile(r'lockstep_audit_finding_nodes\{.*id="([^"]*)",.*coordinate="([^"]*)"\}')


def assert_whole(text: str) -> None:
    """First and last family are there."""
    assert text.startswith("# HELP lockstep_audit_timestamp_seconds"), text
    assert re.search(r"\nlockstep_audit_second_pass_nodes\{[^\n]*\} \d+\n\Z", text), text


class Watch:
    """Every look asserts that the file is whole, so one that is written in place fails sooner or later."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path) -> None:
        self.process = process
        self.file = file
        self.files: set[int] = set()
        """Inode numbers seen."""
        self.times: list[float] = []
        """Of the readings seen, each once."""

    def look(self) -> str:
        """The text; empty before the first round."""
        assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
        try:
            with self.file.open() as file:
                self.files.add(self.file.stat().st_ino)
                text = file.read()
        except FileNotFoundError:
            return ""
        assert_whole(text)
        taken = re.search(r"^lockstep_audit_timestamp_seconds\{.*\} ([\d.e+]+)$", text, re.M)
        assert taken is not None
        if not self.times or self.times[-1] != float(taken[1]):
            self.times.append(float(taken[1]))
        return text

    def deviating(self) -> dict[str, str]:
        """Node → verdict."""
        return dict(_DEVIATES.findall(self.look()))

    def findings(self) -> set[tuple[str, str]]:
        """(id, coordinate)."""
        return set(_PLACE.findall(self.look()))

    def until(self, condition: Callable[[], bool], seconds: float = 120) -> None:
        """Look until it is so."""
        limit = time.monotonic() + seconds
        while not (self.look() and condition()):
            if time.monotonic() > limit:
                pytest.fail(f"not so after {seconds} s:\n{self.look()}")
            time.sleep(0.05)


@contextlib.contextmanager
def watching(words: Sequence[str], file: Path, env: Mapping[str, str], cwd: Path) -> Iterator[Watch]:
    """``words`` follow `lockstep audit`; it looks again each second."""
    program = str(Path(sys.executable).with_name("lockstep"))
    form = ["--watch", "1", "--format", "prometheus", "--output", str(file)]
    process = subprocess.Popen([program, "audit", *words, *form], env=env, cwd=cwd, stderr=subprocess.PIPE)
    try:
        yield Watch(process, file)
    finally:
        process.kill()
        process.communicate()
