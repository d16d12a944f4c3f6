"""Build and find the programs of `tools/`: `find`, `find_data`, `build`, `status`, `link`.

One Go module per program family, its versions and checksums committed; results lie in the
user's cache under a digest of what they were made from and serve every checkout. No Go is
needed to find them.
"""

from lockstep.base.programs.building import Built, Progress, Stage
from lockstep.base.programs.finding import (
    Program,
    State,
    build,
    estimate_seconds,
    find,
    find_data,
    link,
    missing,
    status,
)

__all__ = [
    "Built",
    "Program",
    "Progress",
    "Stage",
    "State",
    "build",
    "estimate_seconds",
    "find",
    "find_data",
    "link",
    "missing",
    "status",
]
