"""From a FLEET argument to a stack and its environment, for `up` and `env` alike."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from inventory import load, model
from lockstep.base import documents, errors, issues, settings
from pinsets import checks
from stacks import exports, pools
from stacks import settings as stack_settings

__all__ = ["Environment", "resolve"]


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment, resolved."""

    stack: str
    fleet: model.Fleet
    config: str | None
    """What the stack's config must say of its fleet; None where the stack's name says it."""
    where: settings.Settings
    """With the environment's own state folder."""
    variables: dict[str, str]
    """For the engine: `exports.variables`."""


def resolve(fleet: str) -> Environment:
    """The environment of a fleet's name or path, its files read and checked.

    Raises `errors.InputError` with all that is wrong, and for a lab that is not running the remedy.
    """
    where = settings.load(exports.cleaned(os.environ))
    checkout = where.need_checkout("up")
    named = "/" not in fleet and not fleet.endswith((".yaml", ".yml"))
    path = None if named else load.find(fleet, where)
    stack = fleet if named else _stack_of(fleet, where)
    wanted = _stack_file(checkout, stack)
    if path is not None:
        _need_the_stacks_own(path, stack, wanted, checkout)
    place = _place(stack, wanted, where)
    variables = exports.variables(place, where, os.environ)
    where = settings.load({**os.environ, **variables, "LOCKSTEP_ROOT": str(checkout)})
    source = str(path) if path is not None else _fleet_setting(wanted, stack, checkout)
    found = load.fleet(source, where, more=checks.CHECKS)
    reference = pools.reference(found, checkout)
    config = None if reference == stack or "fleet" in wanted else reference
    return Environment(stack, found, config, where, variables)


def _stack_of(fleet: str, where: settings.Settings) -> str:
    return str(load.fleet(fleet, where).name)


def _need_the_stacks_own(path: Path, stack: str, wanted: dict[str, str], checkout: Path) -> None:
    """Raise `errors.InputError` where the stack is another file's: that one's pools would count as removed."""
    setting = _fleet_setting(wanted, stack, checkout)
    is_path = "/" in setting or setting.endswith((".yaml", ".yml"))
    meant = Path(setting).expanduser() if is_path else checkout / pools.FLEETS / f"{setting}.yaml"
    if meant.resolve() == path.resolve() or ("fleet" not in wanted and not meant.is_file()):
        return
    raise errors.InputError(
        f"stack {stack} is made for the fleet file {meant}, and {path} was named",
        place=f"stacks/Pulumi.{stack}.yaml",
        hint=f"give the second fleet a name of its own, or set `{stack_settings.NAMESPACE}:fleet: {path}` there",
    )


def _fleet_setting(wanted: dict[str, str], stack: str, checkout: Path) -> str:
    setting = wanted.get("fleet", stack)
    relative = ("/" in setting or setting.endswith((".yaml", ".yml"))) and not Path(setting).expanduser().is_absolute()
    return str(checkout / setting) if relative else setting


def _stack_file(checkout: Path, stack: str) -> dict[str, str]:
    """Our settings in ``stacks/Pulumi.STACK.yaml``; empty when there is no file yet."""
    path = checkout / "stacks" / f"Pulumi.{stack}.yaml"
    if not path.is_file():
        return {}
    report = issues.Report()
    document = documents.load(path, report)
    report.raise_if_errors(f"stack {stack}")
    config = document.data.get("config") if document and isinstance(document.data, dict) else None
    entries = config if isinstance(config, dict) else {}
    prefix = f"{stack_settings.NAMESPACE}:"
    return {key.removeprefix(prefix): str(value) for key, value in entries.items() if key.startswith(prefix)}


def _place(stack: str, wanted: dict[str, str], where: settings.Settings) -> exports.Place:
    """The state folder and what else the environment exports; raises for a lab that is not running."""
    if wanted.get("lab", "").lower() == "true" or (where.labs / stack / "lab.json").is_file():
        return _lab_place(stack, where)
    extra = {}
    if "kubeconfig" in wanted:
        extra["KUBECONFIG"] = str(checkout_path(Path(wanted["kubeconfig"]), where))
    return exports.Place(where.state, extra, fixed=False)


def _lab_place(name: str, where: settings.Settings) -> exports.Place:
    # Late: only an environment that is a lab pays for the lab's modules.
    from lab import labs, nodes, spec

    remedy = f"lockstep lab up {name}"
    try:
        exported = labs.environment(name, where)
    except errors.InputError as error:
        raise errors.InputError(f"lab {name} does not exist on this machine", hint=remedy) from error
    state = Path(exported["LOCKSTEP_STATE"])
    if not any(nodes.alive(state, node.name) for node in spec.read(state).nodes):
        raise errors.InputError(f"lab {name} is not running", place=str(state), hint=remedy)
    # A lab without a control plane is an environment without a cluster, whatever cluster the user works with else.
    kubeconfig = Path(exported["KUBECONFIG"])
    return exports.Place(state, {"KUBECONFIG": str(kubeconfig) if kubeconfig.is_file() else ""}, fixed=True)


def checkout_path(path: Path, where: settings.Settings) -> Path:
    """``path`` with ``~`` expanded, relative ones against the checkout."""
    expanded = path.expanduser()
    return expanded if expanded.is_absolute() else where.need_checkout("up") / expanded
