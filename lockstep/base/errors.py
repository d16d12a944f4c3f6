"""The error tree and the one table of exit codes.

    LockstepError            5  internal, or the engine failed
    ├── InputError           2  a file or an argument is wrong; may carry a whole report
    ├── NotMeasuredError     3  nothing could be read where a reading was needed
    ├── RefusedError         4  a gate, lease, budget, policy or owner forbids it
    │   └── BusyError        4  somebody else holds it now; the same call may work later
    ├── EngineError          5  a program we run (pulumi, ansible, go) failed
    └── InterruptedRunError  130  stopped half way; the same command resumes

Every error says what happened, where (``place``) and what to do (``hint``); the
command line prints `diagnostics()` and leaves with `exit_code`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.base.issues import Report


class ExitCode(enum.IntEnum):
    """Exit codes of every verb."""

    IN_STEP = 0
    """In step; also warnings and infos unless `--fail-on warn`."""
    DRIFT = 1
    """Drift or skew was found."""
    BAD_INPUT = 2
    """Bad input or usage."""
    NOT_MEASURED = 3
    """Could not measure: unreachable, unreadable, zero nodes."""
    REFUSED = 4
    """A gate, lease, budget, plan or owner forbids it."""
    INTERNAL = 5
    """Internal or engine error."""
    INTERRUPTED = 130
    """Interrupted, resumable."""


def combine(codes: Iterable[ExitCode], *, strict: bool = False) -> ExitCode:
    """The one exit code when several apply: 130 > 5 > 2 > 4 > 1 > 3, with ``strict`` 3 > 1.

    An interrupt wins over all: what else was found is not the whole truth then.
    """
    order = [ExitCode.INTERRUPTED, ExitCode.INTERNAL, ExitCode.BAD_INPUT, ExitCode.REFUSED]
    order += [ExitCode.NOT_MEASURED, ExitCode.DRIFT] if strict else [ExitCode.DRIFT, ExitCode.NOT_MEASURED]
    found = set(codes)
    return next((code for code in order if code in found), ExitCode.IN_STEP)


class LockstepError(Exception):
    """Base of all errors that a person is meant to read."""

    exit_code: ExitCode = ExitCode.INTERNAL

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        """File and line, node, or command; None when the message says it all."""
        self.hint = hint
        """The remedy, as a sentence or a command; None when there is none to give."""

    def diagnostics(self) -> str:
        """The text for a terminal: place, message, remedy."""
        head = f"{self.place}: {self.message}" if self.place else self.message
        return f"{head}\n  hint: {self.hint}" if self.hint else head


class InputError(LockstepError):
    """A file or an argument is wrong. Carries every issue found, not only the first."""

    exit_code = ExitCode.BAD_INPUT

    def __init__(
        self, message: str, *, place: str | None = None, hint: str | None = None, report: Report | None = None
    ) -> None:
        super().__init__(message, place=place, hint=hint)
        self.report = report

    def diagnostics(self) -> str:
        """The report's issues one per line when there is a report, else as the base class."""
        if self.report is None:
            return super().diagnostics()
        return "\n".join([*(issue.text() for issue in self.report.issues), super().diagnostics()])


class NotMeasuredError(LockstepError):
    """Nothing could be read where a reading was needed."""

    exit_code = ExitCode.NOT_MEASURED


class RefusedError(LockstepError):
    """A gate, lease, budget, policy or owner forbids it."""

    exit_code = ExitCode.REFUSED


class BusyError(RefusedError):
    """Somebody else holds it now; the same call may work later."""


class EngineError(LockstepError):
    """A program that we run failed."""

    exit_code = ExitCode.INTERNAL


class InterruptedRunError(LockstepError):
    """Stopped half way; the same command resumes."""

    exit_code = ExitCode.INTERRUPTED
