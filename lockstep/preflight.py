"""For training scripts: compare what the ranks of this job have really mapped, before the first collective.

>>> from lockstep import preflight
>>> preflight.check(folder="/scratch/preflight")  # doctest: +SKIP

Call it after the framework is imported and before its process group is made: then NCCL is mapped, and what is compared
is what will run. `lockstep preflight` does the same from outside.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.base import errors

if TYPE_CHECKING:
    from bringup.injob.meeting import Answer

__all__ = ["check", "meet"]

_RANK = ("RANK", "SLURM_PROCID", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_ATTEMPT = (
    ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    ("PMIX_NAMESPACE",),
)


def check(
    *,
    folder: str | os.PathLike[str] | None = None,
    rendezvous: str | None = None,
    attempt: str | None = None,
    timeout: float = 120,
    ignore: Iterable[str] = (),
) -> None:
    """Return when all ranks are in step; else say why on standard error and leave with SystemExit 1 or 3.

    ``timeout`` in seconds. Raises `errors.InputError` for wrong arguments or a launcher that names no rank.
    """
    answer = meet(
        folder=None if folder is None else str(folder),
        rendezvous=rendezvous,
        attempt=attempt,
        timeout=timeout,
        ignore=ignore,
    )
    if answer.exit_code is not errors.ExitCode.IN_STEP:
        print("\n".join(answer.lines), file=sys.stderr, flush=True)
        raise SystemExit(int(answer.exit_code))


def meet(
    *,
    folder: str | None = None,
    rendezvous: str | None = None,
    rank: int | None = None,
    world: int | None = None,
    attempt: str | None = None,
    timeout: float = 120,
    pid: int | None = None,
    ignore: Iterable[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> Answer:
    """Report this rank and return the verdict over all; what is not given is taken from the launcher's variables."""
    from bringup.injob import meeting, observe
    from bringup.injob import rendezvous as meeting_point

    if (folder is None) == (rendezvous is None):
        raise errors.InputError(
            "give one place to meet: --folder or --rendezvous", hint="a shared folder is the simplest"
        )
    if timeout <= 0:
        raise errors.InputError(f"--timeout {timeout:g}: seconds above zero", place="--timeout")
    at = None if rendezvous is None else meeting_point.address(rendezvous)
    own = _number(rank, _RANK, environment, "--rank")
    ranks = _number(world, _WORLD, environment, "--world")
    if not 0 <= own < ranks:
        raise errors.InputError(f"rank {own} of {ranks} ranks", place="--rank", hint="ranks count from 0")
    report = observe.observe(own, ranks, attempt or _attempt(environment), pid=pid, ignored=ignore)
    if at is not None:
        return meeting_point.meet(report, at, seconds=timeout)
    return meeting.meet(report, Path(str(folder)), seconds=timeout)


def _number(given: int | None, names: Sequence[str], environment: Mapping[str, str], option: str) -> int:
    if given is not None:
        return given
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    raise errors.InputError(
        f"the launcher names none ({', '.join(names)})",
        place=option,
        hint=f"start it by srun or torchrun, or give {option}",
    )


def _attempt(environment: Mapping[str, str]) -> str:
    for names in _ATTEMPT:
        if names[0] in environment:
            return "-".join(environment.get(name, "0") for name in names)
    return "preflight"
