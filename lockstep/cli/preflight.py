"""`lockstep preflight`: inside a job, before its first collective."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.base import errors

if TYPE_CHECKING:
    from bringup.injob.meeting import Answer

__all__ = ["command"]


def command(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- PROGRAM…]", help="Run this when the ranks are in step, in place of this process."),
    ] = None,
    folder: Annotated[
        str | None, typer.Option("--folder", metavar="FOLDER", help="A folder that all ranks can write.")
    ] = None,
    rendezvous: Annotated[
        str | None,
        typer.Option("--rendezvous", metavar="HOST:PORT", help="Without a shared folder: where rank 0 listens."),
    ] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", help="Default: RANK, SLURM_PROCID, PMI_RANK … of the launcher.")
    ] = None,
    world: Annotated[
        int | None, typer.Option("--world", help="Number of ranks; default: WORLD_SIZE, SLURM_NTASKS, PMI_SIZE …")
    ] = None,
    attempt: Annotated[
        str | None,
        typer.Option("--attempt", help="Name of this attempt; default: the launcher's job, step and restart numbers."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Until all ranks must be there.")
    ] = 120,
    pid: Annotated[
        int | None, typer.Option("--pid", help="Look at this process of the machine, not at our own.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="NAME", help="A variable that may differ between ranks.")
    ] = None,
) -> None:
    """Each rank says what it really has mapped (NCCL or RCCL, plugins, libfabric, rdma-core, driver, GPU firmware,
    NCCL_*, UCX_*, FI_*, RCCL_*, HSA_* variables); rank 0 compares, and names the odd rank before the collective hangs.

    Exit 0: all ranks in step · 1: a rank differs · 3: a rank is missing, or something could not be read. All ranks get
    the same code. A training script can do the same in its own process: `from lockstep import preflight;
    preflight.check(folder=…)`.

    \b
    Example:
      srun lockstep preflight --folder /scratch/preflight -- python train.py
      torchrun --no-python --nproc-per-node 8 lockstep preflight --rendezvous 10.0.0.1:29400 -- python train.py
    """
    from lockstep import preflight

    answer = preflight.meet(
        folder=folder,
        rendezvous=rendezvous,
        rank=rank,
        world=world,
        attempt=attempt,
        timeout=timeout,
        pid=pid,
        ignore=ignore or (),
    )
    _leave(answer, program or ())


def _leave(answer: Answer, program: Sequence[str]) -> None:
    """Print the verdict and leave with its code; in step and with a program, become that program."""
    in_step = answer.exit_code is errors.ExitCode.IN_STEP
    for line in answer.lines:
        print(line, file=sys.stdout if in_step else sys.stderr, flush=True)
    if in_step and program:
        try:
            os.execvp(program[0], list(program))  # noqa: S606 - an argument list, the caller's own
        except OSError as error:
            raise errors.InputError(f"cannot run it: {error.strerror}", place=program[0]) from error
    raise typer.Exit(int(answer.exit_code))
