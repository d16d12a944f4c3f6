"""Issues in what people wrote (files, arguments), gathered so that all are shown at once.

Not to be confused with a *finding* (`pinsets.findings`), which is about machines.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from lockstep.base import errors

__all__ = ["Issue", "IssueSeverity", "Report"]


class IssueSeverity(enum.StrEnum):
    """An error stops the verb, a warning is only printed."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing wrong in one place."""

    path: str
    """File as the user gave it, or the name of an argument."""
    line: int | None
    """1-based; None where a place in the file is unknown."""
    message: str
    hint: str | None = None
    severity: IssueSeverity = IssueSeverity.ERROR

    def text(self) -> str:
        """`path:line: severity: message (hint)`, the form that editors and CI logs link."""
        place = f"{self.path}:{self.line}" if self.line is not None else self.path
        tail = f" ({self.hint})" if self.hint else ""
        return f"{place}: {self.severity}: {self.message}{tail}"


@dataclass(slots=True)
class Report:
    """All issues of one reading, in file and line order once `sorted`."""

    issues: list[Issue] = field(default_factory=list)

    def error(self, path: str, line: int | None, message: str, hint: str | None = None) -> None:
        """Add an error."""
        self.issues.append(Issue(path, line, message, hint))

    def warning(self, path: str, line: int | None, message: str, hint: str | None = None) -> None:
        """Add a warning."""
        self.issues.append(Issue(path, line, message, hint, IssueSeverity.WARNING))

    def extend(self, other: Report) -> None:
        """Take over another report's issues."""
        self.issues.extend(other.issues)

    def ordered(self) -> list[Issue]:
        """All issues in file and line order."""
        return sorted(self.issues, key=lambda issue: (issue.path, issue.line or 0))

    @property
    def errors(self) -> list[Issue]:
        """The issues that stop the verb."""
        return [issue for issue in self.issues if issue.severity is IssueSeverity.ERROR]

    @property
    def warnings(self) -> list[Issue]:
        """The issues that are only printed."""
        return [issue for issue in self.issues if issue.severity is IssueSeverity.WARNING]

    def raise_if_errors(self, what: str) -> None:
        """Raise `errors.InputError` with the whole report when there is an error.

        ``what`` names the thing read, for the summary line: "fleet lab".
        """
        if not self.errors:
            return
        ordered = Report(self.ordered())
        count = len(self.errors)
        raise errors.InputError(f"{what}: {count} error{'s' if count > 1 else ''}; nothing was touched", report=ordered)
