"""Settings of one stack, read once from its config into plain values.

Only what belongs to the environment stands here. What belongs to one run (allow, shrink,
accept, facts) are environment variables that the plugin reads, never stack config: a
consent that stays in a file would be given again by the next run.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pydantic
from pydantic import Field

from lockstep.base import errors
from lockstep.base.documents import Model

__all__ = ["StackSettings", "read"]

NAMESPACE = "lockstep"
"""The project's name, before the colon of every key."""


class StackSettings(Model):
    """What a stack's file may set, all of it optional."""

    fleet: Annotated[str, Field(description="Fleet by name or path; default: the stack's name.")]
    lab: Annotated[
        bool, Field(description="The environment is a lab on this machine, started by `lockstep lab up`.")
    ] = False
    kubeconfig: Annotated[
        Path | None,
        Field(description="Path of the cluster's kubeconfig; default: KUBECONFIG. Without one, only pools."),
    ] = None
    cluster: Annotated[
        str | None, Field(description="Stable identifier of the cluster; default: the fleet's name.")
    ] = None


def read(stack: str, config: Mapping[str, str], environ: Mapping[str, str]) -> StackSettings:
    """Settings of ``stack`` from its config (``lockstep:KEY`` → text) and KUBECONFIG.

    Keys of other projects are left alone. Raises `errors.InputError` for an unknown key or a wrong value.
    """
    values: dict[str, object] = {"fleet": stack}
    if environ.get("KUBECONFIG"):
        values["kubeconfig"] = environ["KUBECONFIG"]
    for key, value in config.items():
        namespace, _, name = key.partition(":")
        if namespace == NAMESPACE:
            values[name] = value
    place = f"stacks/Pulumi.{stack}.yaml"
    for name in values:
        if name not in StackSettings.model_fields:
            close = difflib.get_close_matches(name, StackSettings.model_fields, n=1)
            raise errors.InputError(
                f"unknown setting {NAMESPACE}:{name}",
                place=place,
                hint=f"did you mean {NAMESPACE}:{close[0]}?"
                if close
                else f"known: {', '.join(StackSettings.model_fields)}",
            )
    try:
        return StackSettings.model_validate(values)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise errors.InputError(f"{NAMESPACE}:{first['loc'][0]}: {first['msg']}", place=place) from error
