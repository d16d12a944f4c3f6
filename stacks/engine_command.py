"""The engine as a child that ends with us, and that an interrupt reaches once.

The Automation API's own command neither ends its child when we are killed nor passes a
signal on; both matter here, because an engine nobody watches goes on changing machines.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import IO

import semver
from pulumi import automation
from pulumi.automation.errors import create_command_error

from lockstep.base import errors, programs

__all__ = ["EngineCommand"]


class EngineCommand(automation.PulumiCommand):
    """`pulumi` from `lockstep.base.programs`, in a process group of its own.

    The first SIGINT or SIGTERM that we get is passed on, and the engine cancels in order; a second one ends it.
    A SIGKILL of ours sends the engine SIGTERM by the kernel (`setpriv --pdeathsig`, util-linux).
    """

    def __init__(self) -> None:
        self.interrupted = False
        """Whether a signal was passed on to an engine."""
        # Not the base class's: it runs whatever `pulumi` is on PATH, and downloads are its other way.
        self.command = str(programs.find("pulumi"))
        said = subprocess.run(
            [self.command, "version"],
            env={**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        try:
            self.version = semver.VersionInfo.parse(said.stdout.strip().removeprefix("v"))
        except ValueError as error:
            raise errors.EngineError(
                f"pulumi does not say its version: {(said.stdout + said.stderr).strip()!r}", place=self.command
            ) from error

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: Callable[[str], object] | None = None,
        on_error: Callable[[str], object] | None = None,
    ) -> automation.CommandResult:
        """As the base class: raises `automation.CommandError` when the engine fails."""
        setpriv = shutil.which("setpriv")
        tether = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
        environment = {**os.environ, **additional_env, "PULUMI_AUTOMATION_API": "true"}
        with subprocess.Popen(
            [*tether, self.command, "--non-interactive", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=cwd,
            env=environment,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        ) as process:
            output, problems = _Lines(process.stdout, on_output), _Lines(process.stderr, on_error)
            with self._passing_on(process):
                for lines in (output, problems):
                    lines.thread.join()
                code = process.wait()
        result = automation.CommandResult("\n".join(output.seen), "\n".join(problems.seen), code)
        if code != 0:
            raise create_command_error(result)
        return result

    @contextmanager
    def _passing_on(self, process: subprocess.Popen[str]) -> Iterator[None]:
        """While inside, SIGINT and SIGTERM go to the engine instead of ending us; we end when it has."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def pass_on(number: int, frame: FrameType | None) -> None:
            self.interrupted = True
            process.send_signal(number)

        before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Lines:
    """Reads a stream to its end in a thread, line by line."""

    def __init__(self, stream: IO[str] | None, tell: Callable[[str], object] | None) -> None:
        assert stream is not None  # noqa: S101 - both are pipes
        self.seen: list[str] = []
        self._stream = stream
        self._tell = tell
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        for line in self._stream:
            self.seen.append(line.rstrip())
            if self._tell is not None:
                self._tell(line.rstrip())
