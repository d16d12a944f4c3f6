"""Secrets by reference: ``{env: NAME}``, ``{file: PATH}`` or ``{command: [PROGRAM, ARGUMENT…]}``.

A model holds only the reference. `resolve` is called at the edge that needs the
secret, and what it returns prints as stars.
"""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from lockstep.base import errors

__all__ = ["Reference", "resolve"]

COMMAND_SECONDS = 30
"""A password manager may ask the network; a person is never asked."""


class Reference(BaseModel):
    """Exactly one of the three."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    env: Annotated[str | None, Field(description="Name of an environment variable.")] = None
    file: Annotated[Path | None, Field(description="Path of a file readable by its owner only (0600 or stricter).")] = (
        None
    )
    command: Annotated[
        tuple[str, ...] | None, Field(description="Program and arguments; its standard output is the secret.")
    ] = None

    @model_validator(mode="after")
    def _one_of_three(self) -> Reference:
        if sum(value is not None for value in (self.env, self.file, self.command)) != 1:
            raise ValueError("give exactly one of env, file and command")
        if self.command is not None and not self.command:
            raise ValueError("command is empty; write [PROGRAM, ARGUMENT…]")
        return self


def resolve(reference: Reference, *, place: str) -> SecretStr:
    """The secret itself, trailing newline dropped.

    ``place`` names the entry for messages. Raises `errors.InputError` when it is
    missing, empty, or lies in a file that others can read.
    """
    if reference.env is not None:
        value = os.environ.get(reference.env)
        if not value:
            raise errors.InputError(f"environment variable {reference.env} is not set", place=place)
        return SecretStr(value)
    if reference.file is not None:
        return SecretStr(_read_private(reference.file, place))
    assert reference.command is not None  # noqa: S101 - the model's validator holds it
    try:
        done = subprocess.run(
            list(reference.command), capture_output=True, text=True, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise errors.InputError(f"credential command failed: {type(error).__name__}", place=place) from error
    if done.returncode != 0 or not done.stdout.strip():
        # Its output is not shown: it may hold half a secret.
        raise errors.InputError(f"credential command {reference.command[0]} ended with {done.returncode}", place=place)
    return SecretStr(done.stdout.rstrip("\n"))


def _read_private(path: Path, place: str) -> str:
    try:
        mode = path.stat().st_mode
        text = path.read_text()
    except OSError as error:
        raise errors.InputError(
            f"cannot read {path}: {error.strerror}",
            place=place,
            hint="name a file that is there and yours to read; a lab's own is made by `lockstep lab up`",
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise errors.InputError(f"{path} can be read by others", place=place, hint=f"chmod 600 {path}")
    if not text.strip():
        raise errors.InputError(f"{path} is empty", place=place)
    return text.rstrip("\n")
