"""The verdict over the reports of a job's ranks. Pure.

Without a declared set the majority is right, as in an audit without a fleet file; where fewer than 80 % agree every
group is named. What one rank could not read is never a match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bringup.injob.reports import Report
from lockstep.base import errors, limits, plaintext

__all__ = ["Odd", "Verdict", "judge"]

_COLLECTIVES: Final = ("nccl@library", "rccl@library")


@dataclass(frozen=True, slots=True)
class Odd:
    """One deviation, and who has it."""

    what: str
    """Coordinate, or ``variable NAME``."""
    ranks: tuple[int, ...]
    observed: str
    expected: str
    """The majority's value with its share; or the groups, where there is no majority."""
    hosts: tuple[str, ...]
    file: str | None = None
    """Real file on the first of the ranks."""
    unreadable: bool = False

    def text(self) -> str:
        """One line for a job's log."""
        some = ", ".join(map(str, self.ranks[:8])) + (f" and {len(self.ranks) - 8} more" if len(self.ranks) > 8 else "")
        hosts = ", ".join(self.hosts[:4]) + (" …" if len(self.hosts) > 4 else "")
        seen = f"unreadable: {self.observed}" if self.unreadable else self.observed
        origin = f", from {self.file}" if self.file else ""
        ranks = "rank" if len(self.ranks) == 1 else "ranks"
        return plaintext.visible(f"{ranks} {some} ({hosts}): {self.what} {seen}{origin}; {self.expected}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the meeting."""

    world: int
    odd: tuple[Odd, ...]
    missing: tuple[int, ...] = ()
    """Ranks that did not report in time."""
    problems: tuple[str, ...] = ()
    """Why something was not measured: no collective library at all, damaged reports."""
    common: Mapping[str, str] | None = None
    """What all ranks, or their majority, have."""

    @property
    def exit_code(self) -> errors.ExitCode:
        """1 for a rank that differs, 3 where something could not be measured, 0 only when all was read and equal."""
        codes = [errors.ExitCode.NOT_MEASURED if odd.unreadable else errors.ExitCode.DRIFT for odd in self.odd]
        if self.missing or self.problems:
            codes.append(errors.ExitCode.NOT_MEASURED)
        return errors.combine(codes)

    def lines(self) -> list[str]:
        """For the log: odd ranks first, then what is missing, then the common set."""
        found = [odd.text() for odd in self.odd]
        if self.missing:
            some = ", ".join(map(str, self.missing[:16])) + (" …" if len(self.missing) > 16 else "")
            found.append(f"{len(self.missing)} of {self.world} ranks did not report: {some}")
        found += self.problems
        if not found:
            shown = ", ".join(f"{name} {value}" for name, value in (self.common or {}).items() if "@" in name)
            found.append(plaintext.visible(f"{self.world} ranks in step: {shown}"))
        return found


def judge(reports: Sequence[Report], world: int, problems: Sequence[str] = ()) -> Verdict:
    """Compare ``reports``, at most one for a rank, of a job of ``world`` ranks."""
    by_rank = {report.rank: report for report in reports}
    missing = tuple(rank for rank in range(world) if rank not in by_rank)
    present = [by_rank[rank] for rank in sorted(by_rank)]
    names = sorted({name for report in present for name in (*report.values, *report.unreadable)})
    odd: list[Odd] = []
    common: dict[str, str] = {}
    for name in names:
        odd += _one(name, present, common)
    found = list(problems)
    if present and not any(name in names for name in _COLLECTIVES):
        found.append(
            "no rank has NCCL or RCCL mapped, and the loader finds neither: run it where the job's libraries are"
        )
    return Verdict(world, tuple(odd), missing, tuple(found), common)


def _one(name: str, reports: Sequence[Report], common: dict[str, str]) -> list[Odd]:
    groups: dict[str, list[Report]] = {}
    blind: dict[str, list[Report]] = {}
    for report in reports:
        if name in report.unreadable:
            blind.setdefault(report.unreadable[name], []).append(report)
        else:
            groups.setdefault(report.values.get(name, "absent"), []).append(report)
    counts = Counter({value: len(members) for value, members in groups.items()})
    total = sum(counts.values())
    odd: list[Odd] = []
    if counts:
        value, most = counts.most_common(1)[0]
        decided = most >= total * limits.MAJORITY_SHARE
        if decided:
            common[name] = value
        expected = f"{most} of {total} have {value}" if decided else f"no majority: {_split(counts)}"
        odd += [
            _odd(name, members, seen, expected)
            for seen, members in groups.items()
            if len(counts) > 1 and not (decided and seen == value)
        ]
    expected = f"{total} others were read"
    return odd + [_odd(name, members, why, expected, unreadable=True) for why, members in blind.items()]


def _split(counts: Counter[str]) -> str:
    shown = ", ".join(f"{value} on {count}" for value, count in counts.most_common(4))
    return shown + (f" and {len(counts) - 4} more" if len(counts) > 4 else "")


def _odd(name: str, reports: Sequence[Report], seen: str, expected: str, *, unreadable: bool = False) -> Odd:
    hosts = tuple(dict.fromkeys(report.host for report in reports))
    ranks = tuple(report.rank for report in reports)
    return Odd(name, ranks, seen, expected, hosts, reports[0].files.get(name), unreadable)
