"""MIG instances on a GPU as positions on its eight memory slices.

Sizes and start positions as NVML reports them for 80 GB-class data-centre GPUs with
seven compute slices (A100, H100, H200, B200; NVIDIA's MIG user guide, "placements").
The driver picks among equal starts itself, so a plan holds positions but promises none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from placement.topology import WHOLE

__all__ = ["PROFILES", "Profile", "fit"]

SLICES: Final = 8


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of instance."""

    length: int
    """Memory slices."""
    starts: tuple[int, ...]
    """Slices where it may begin."""

    @property
    def share(self) -> int:
        """Thousandths of the GPU that accounting charges: its part of the memory slices."""
        return self.length * WHOLE // SLICES

    def masks(self) -> tuple[int, ...]:
        """Bit masks of the places where it may stand."""
        return tuple(((1 << self.length) - 1) << start for start in self.starts)


PROFILES: Final = {
    "1g": Profile(1, (0, 1, 2, 3, 4, 5, 6)),
    "1g.2x": Profile(2, (0, 2, 4, 6)),
    "2g": Profile(2, (0, 2, 4)),
    "3g": Profile(4, (0, 4)),
    "4g": Profile(4, (0,)),
    "7g": Profile(8, (0,)),
}
"""Profile → shape; ``1g.2x`` is the one with twice the memory (``1g.20gb`` on 80 GB)."""


def fit(taken: int, profile: str) -> int | None:
    """Mask for a new instance beside ``taken``; None if it does not fit.

    Of the possible places the one that leaves most places for ``3g`` and then for ``2g``,
    so that small instances do not spoil the halves.
    """
    free = [mask for mask in PROFILES[profile].masks() if not mask & taken]
    return max(free, key=lambda mask: (_left(taken | mask, "3g"), _left(taken | mask, "2g"), mask), default=None)


def _left(taken: int, profile: str) -> int:
    return sum(not mask & taken for mask in PROFILES[profile].masks())
