"""`lockstep up`: the engine on the committed program, through the Automation API.

A local program, not an inline one: project, stack, config, backend and plugin are then
exactly those of plain `pulumi`, and either can go on where the other stopped.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pulumi import automation

from lockstep.base import errors, settings
from stacks import engine_command, results, stack_locks

__all__ = ["Run", "ensure_stack", "preview", "up"]

Tell = Callable[[str], None]
"""Takes a line of the engine's own display."""


@dataclass(frozen=True, slots=True)
class Run:
    """What came of it."""

    exit_code: errors.ExitCode
    outcomes: tuple[results.PoolOutcome, ...]
    """Pools that were acted on or refused; a pool that had no change is not among them."""
    error: str | None = None
    """The engine's reason when it failed."""


def up(stack: str, where: settings.Settings, variables: Mapping[str, str], tell: Tell, fleet: str | None = None) -> Run:
    """Bring the environment of ``stack`` into step.

    ``variables`` as `exports.variables` made them, words included; ``fleet`` as in `ensure_stack`.
    """

    def act(opened: automation.Stack) -> errors.ExitCode:
        opened.up(on_output=tell, on_error=tell)
        return errors.ExitCode.IN_STEP

    return _run(stack, where, variables, tell, fleet, act)


def preview(
    stack: str, where: settings.Settings, variables: Mapping[str, str], tell: Tell, fleet: str | None = None
) -> Run:
    """What `up` would do, from live facts; touches nothing and writes no state. Exit code 1 when there is a change."""

    def act(opened: automation.Stack) -> errors.ExitCode:
        found = opened.preview(on_output=tell, on_error=tell, diff=True)
        changes = [kind for kind, count in found.change_summary.items() if count and kind is not automation.OpType.SAME]
        return errors.ExitCode.DRIFT if changes else errors.ExitCode.IN_STEP

    return _run(stack, where, variables, tell, fleet, act)


def ensure_stack(
    stack: str,
    where: settings.Settings,
    variables: Mapping[str, str],
    fleet: str | None = None,
    command: engine_command.EngineCommand | None = None,
) -> automation.Stack:
    """Select the stack, made if it is missing; ``fleet`` is set in its config when it is not there yet.

    Raises `errors.EngineError` when the engine refuses, `errors.InputError` for a stack of another fleet file.
    """
    checkout = where.need_checkout("up")
    options = automation.LocalWorkspaceOptions(
        env_vars=dict(variables), pulumi_command=command or engine_command.EngineCommand()
    )
    try:
        opened = automation.create_or_select_stack(stack, work_dir=str(checkout), opts=options)
        declared = opened.get_all_config().get(f"{stack_locks.PROJECT}:fleet")
        if fleet is not None and declared is None:
            opened.set_config("fleet", automation.ConfigValue(fleet))
        elif fleet is not None and declared is not None and declared.value != fleet:
            raise errors.InputError(
                f"stack {stack} is made for the fleet file {declared.value}, and {fleet} was named",
                place=f"stacks/Pulumi.{stack}.yaml",
                hint=f"give the second fleet a name of its own, or set `{stack_locks.PROJECT}:fleet: {fleet}` there",
            )
    except automation.CommandError as error:
        raise errors.EngineError(_reason(error), place=f"stack {stack}", hint=_hint(str(error))) from error
    return opened


def _run(
    stack: str,
    where: settings.Settings,
    variables: Mapping[str, str],
    tell: Tell,
    fleet: str | None,
    act: Callable[[automation.Stack], errors.ExitCode],
) -> Run:
    command = engine_command.EngineCommand()
    for line in stack_locks.clear_dead(variables["PULUMI_BACKEND_URL"], stack):
        tell(line)
    with tempfile.TemporaryDirectory(prefix="lockstep-up-") as folder:
        report = Path(folder) / "results.jsonl"
        opened = ensure_stack(stack, where, {**variables, results.VARIABLE: str(report)}, fleet, command)
        codes, failure = [], None
        try:
            codes.append(act(opened))
        except automation.ConcurrentUpdateError as error:
            raise errors.BusyError(
                "another run holds the stack",
                place=f"stack {stack}",
                hint="wait for it; if there is none: pulumi cancel",
            ) from error
        except automation.CommandError as error:
            failure = _reason(error)
        if command.interrupted:
            raise errors.InterruptedRunError("interrupted", hint="the same command goes on where this one stopped")
        outcomes = results.read(report)
    return Run(errors.combine([*codes, *_codes(outcomes, failure)]), outcomes, failure)


def _codes(outcomes: tuple[results.PoolOutcome, ...], failure: str | None) -> list[errors.ExitCode]:
    """The pools' codes, and 5 when the engine failed for a reason that no pool gave."""
    codes = [outcome.exit_code for outcome in outcomes]
    explained = any(outcome.error or outcome.exit_code is errors.ExitCode.INTERNAL for outcome in outcomes)
    return codes if failure is None or explained else [*codes, errors.ExitCode.INTERNAL]


def _reason(error: automation.CommandError) -> str:
    """The engine's own lines that begin with ``error:``; its last line when there is none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("error:")]
    return "\n".join(dict.fromkeys(said)) or (lines[-1] if lines else "the engine failed without a word")


def _hint(text: str) -> str | None:
    if "incorrect passphrase" in text:
        return (
            "the stack was made with another passphrase; set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE"
        )
    return None
