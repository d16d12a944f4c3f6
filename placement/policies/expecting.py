"""What work is expected: how often each kind arrives, how long it stays, and so what fills the fleet.

What lives long is more of what is present than of what arrives: a plan is for frequency times
lifetime. Frequencies and lifetimes are given, or learned from the arrivals, the running and the
finished work seen so far. Time is counted in arrivals: only ratios matter, and a policy needs no clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from placement.tasks import Task, Workload

__all__ = ["Expectation", "distance"]

PRIOR = 3.0
"""Finished pieces of work that the mean lifetime of all kinds counts for in that of one kind."""
SURPRISE, SURPRISE_AFTER = 6.0, 250
"""Standard deviations by which the arrivals seen must be off the frequencies given before these are doubted, and
arrivals between two such tests. Frequencies off by a third are found after about 2,000 arrivals."""
DRIFT = 0.1
"""Part of the work that must be of other kinds than planned for a new plan to be due."""
LEAST = 5.0
"""Arrivals expected of a kind for it to be a class of its own in that test; rarer ones are one class together."""


class Expectation:
    """``frequencies`` None: learn them. ``lives``: mean lifetime per kind in any one unit; None: learn them."""

    def __init__(self, frequencies: Workload | None, lives: Mapping[Task, float] | None = None) -> None:
        self.learning = frequencies is None
        """Whether frequencies come from the arrivals seen, also because the ones given turned out wrong."""
        self.present: Counter[Task] = Counter()
        self.arrived = 0
        """Arrivals since the start, forgotten ones too."""
        self.seen: dict[Task, float] = {}
        self.lives = lives
        self._given = frequencies
        self._trust = 0.0
        """Pieces of work of each kind that its given frequency counts for."""
        self._next_test = SURPRISE_AFTER
        self._risk: dict[Task, float] = {}
        """Time that work of a kind has been running, up to the kind's last change."""
        self._changed: dict[Task, int] = {}
        self._finished: Counter[Task] = Counter()

    def arrive(self, task: Task) -> bool:
        """Count an arrival; True when it shows that the frequencies given are wrong."""
        self.arrived += 1
        self.seen[task] = self.seen.get(task, 0.0) + 1.0
        if self._given is None or self.lives is not None or self.learning or self.arrived < self._next_test:
            return False
        self._next_test += SURPRISE_AFTER
        return self._doubt(self._given)

    def place(self, task: Task) -> None:
        """It got a place."""
        self._tick(task)
        self.present[task] += 1

    def leave(self, task: Task) -> None:
        """It has ended."""
        self._tick(task)
        self.present[task] -= 1
        self._finished[task] += 1

    def forget(self, most: float) -> None:
        """Halve the arrivals remembered when they are more than ``most``."""
        if sum(self.seen.values()) > most:
            self.seen = {kind: count / 2 for kind, count in self.seen.items()}

    def frequencies(self) -> Workload | None:
        """Of arrivals; None before the first when none are given."""
        if not self.learning:
            return self._given
        if not self.seen:
            return None
        if self._given is None:
            return Workload.counted(self.seen)
        number, trust = sum(self.seen.values()), self._trust
        given = self._given.frequencies
        blended = {
            kind: (trust + self.seen.get(kind, 0.0)) / (trust / part + number) for kind, part in given.items() if part
        }
        blended |= {kind: count / number for kind, count in self.seen.items() if not given.get(kind)}
        return Workload.counted(blended)

    def mix(self) -> Workload | None:
        """Of what is present when the fleet is full: frequency times lifetime."""
        frequencies = self.frequencies()
        if frequencies is None:
            return None
        if self.lives is not None:
            known = [self.lives[kind] for kind in frequencies.frequencies if kind in self.lives]
            mean = sum(known) / len(known) if known else 1.0
            weights = {kind: part * self.lives.get(kind, mean) for kind, part in frequencies.frequencies.items()}
        else:
            ended = sum(self._finished.values())
            if not ended:
                return frequencies
            # Running time over ends: the estimate of a mean when part of the lives have not ended yet.
            for kind in self.present:
                self._tick(kind)
            mean = sum(self._risk.values()) / ended
            weights = {
                kind: part * (self._risk.get(kind, 0.0) + PRIOR * mean) / (self._finished[kind] + PRIOR)
                for kind, part in frequencies.frequencies.items()
            }
        return Workload.counted(weights) if sum(weights.values()) > 0 else frequencies

    def drifted(self, planned: Workload) -> bool:
        """Whether what fills the fleet, by the lifetimes learned, is not what was ``planned`` for."""
        mix = self.mix() if self.lives is None else None
        return mix is not None and distance(mix, planned) > DRIFT

    def _tick(self, task: Task) -> None:
        since = self.arrived - self._changed.get(task, self.arrived)
        self._risk[task] = self._risk.get(task, 0.0) + self.present[task] * since
        self._changed[task] = self.arrived

    def _doubt(self, given: Workload) -> bool:
        """A chi-squared test of the arrivals seen against ``given``, and how far off it seems to be."""
        number = sum(self.seen.values())
        square = rest_seen = rest_expected = 0.0
        classes = 0
        for kind, part in given.frequencies.items():
            expected, seen = part * number, self.seen.get(kind, 0.0)
            if expected < LEAST:
                rest_seen, rest_expected = rest_seen + seen, rest_expected + expected
                continue
            square += (seen - expected) ** 2 / expected
            classes += 1
        rest_seen += sum(count for kind, count in self.seen.items() if kind not in given.frequencies)
        square += (rest_seen - rest_expected) ** 2 / max(rest_expected, LEAST)
        if square - classes <= SURPRISE * math.sqrt(2 * max(classes, 1)):
            return False
        # The excess over what chance gives is the number of arrivals times the mean squared relative error.
        self._trust = number / (square - classes)
        self.learning = True
        return True


def distance(one: Workload, other: Workload) -> float:
    """Part of the work that would have to be of another kind for the mixes to be equal, 0 to 1."""
    mine, theirs = one.frequencies, other.frequencies
    return sum(max(0.0, part - theirs.get(kind, 0.0)) for kind, part in mine.items())
