"""Create and Update: bring a pool into step through `bringup.engine`, and put its answer into the engine's words.

Only an act that failed fails the resource. What policy forbids, what is busy and what cannot
be mended is a warning per node and stays in ``skew``; the next run sees it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from inventory import model
from lockstep.base import errors, settings
from pinsets import skew as skews
from stacks import pools, results
from stacks.provider import sweeps

if TYPE_CHECKING:
    from bringup import results as pool_results
    from bringup import words

__all__ = ["Act", "Acted", "Voice", "bring", "preflight"]


@dataclass(frozen=True, slots=True)
class Acted:
    """What is known after an act."""

    skew: pools.Skew
    failures: tuple[str, ...]
    """Reasons why the pool counts as half finished, one per node whose act failed."""
    warnings: tuple[str, ...]
    """One per node that stays out of step though nothing failed."""


@dataclass(frozen=True, slots=True)
class Voice:
    """Where the lines of an act go."""

    status: Callable[[str], None]
    say: Callable[[str], None]


Act = Callable[[model.Fleet, model.Pool, Path | None, Voice], Acted]
"""(fleet, pool, kubeconfig of the cluster to join; None: what the environment says, voice) → what is known after."""


def preflight(fleet: model.Fleet, pool: model.Pool, where: settings.Settings) -> None:
    """Everything that refuses the whole run, touching nothing. Raises `errors.LockstepError`."""
    from bringup import preflight as checks

    # A preview may use stored facts; acts refuse them by themselves.
    checks.preflight(fleet, pool, where, replace(spoken(os.environ), facts=None))


def spoken(environ: Mapping[str, str]) -> words.Words:
    """The words of this run. Raises `errors.InputError` for a wrong one, `errors.RefusedError` for a plan."""
    from bringup import words

    found = words.from_environment(environ)
    if found.plan is not None:
        raise errors.RefusedError(
            "plans are not supported yet", place="LOCKSTEP_PLAN", hint="unset it; --allow names the kinds for one run"
        )
    return found


def bring(read: sweeps.Read, waiting: sweeps.Waiting, where: settings.Settings) -> Act:
    """The real act: live, or only a check of the stored facts with LOCKSTEP_FACTS."""

    def act(fleet: model.Fleet, pool: model.Pool, kubeconfig: Path | None, voice: Voice) -> Acted:
        said = spoken(os.environ)
        try:
            if os.environ.get("LOCKSTEP_FACTS", "ssh") not in ("", "ssh"):
                return _from_stored_facts(fleet, pool, read, waiting, voice)
            return _live(fleet, pool, kubeconfig, said, where, voice)
        except errors.LockstepError as error:
            refused = results.PoolOutcome(str(pool.name), error.exit_code, error=error.diagnostics())
            results.append(refused, os.environ)
            raise

    return act


def _from_stored_facts(
    fleet: model.Fleet, pool: model.Pool, read: sweeps.Read, waiting: sweeps.Waiting, voice: Voice
) -> Acted:
    """A pool that stored facts show in step needs no act; any other needs to be looked at first."""
    found = read(fleet, voice.status)
    skew = sweeps.of(pool, found, waiting(fleet, pool, found))
    if skew:
        raise errors.RefusedError(
            f"{len(skew)} nodes of {pool.name} are not in step, and acts need live facts", hint="unset LOCKSTEP_FACTS"
        )
    return Acted({}, (), ())


def _live(
    fleet: model.Fleet,
    pool: model.Pool,
    kubeconfig: Path | None,
    said: words.Words,
    where: settings.Settings,
    voice: Voice,
) -> Acted:
    # Late: Ansible and the cluster client load here and not in a preview.
    from bringup import engine, joining

    def heard(event: pool_results.Event) -> None:
        # What a pool begins stays in the output; each step inside a stage is shown while it lasts.
        (voice.say if event.stage is None else voice.status)(_line(event))

    cluster = joining.from_environment(where, os.environ, kubeconfig)
    result = engine.bring_into_step(fleet, pool, where, said, heard, joining=cluster)
    for note in result.notes:
        voice.say(note)
    return told(pool, result)


def told(pool: model.Pool, result: pool_results.PoolResult) -> Acted:
    """A pool's result as skew, failures and warnings; also written for `lockstep up`."""
    from bringup.results import Outcome

    fine = {Outcome.IN_STEP, Outcome.ADMITTED, Outcome.MENDED, Outcome.STAGED, Outcome.ADOPTED}
    skew: pools.Skew = {str(node): dict(entry) for node, entry in skews.of(result.comparison).items()}
    failed = {entry.node for entry in result.failed}
    failures: list[str] = []
    warnings: list[str] = []
    open_nodes: dict[str, str] = {}
    for node, entry in result.nodes.items():
        if entry.outcome in fine:
            continue
        if entry.outcome is Outcome.HELD:
            skew.pop(str(node), None)
            continue
        reason = "; ".join(entry.reasons) or str(entry.outcome)
        open_nodes[str(node)] = f"{entry.outcome}: {reason}"
        (failures if node in failed else warnings).append(f"{node}: {entry.outcome}: {reason}")
        if node in failed:
            # The comparison may be clean when what failed came after the versions (join, admit).
            skew.setdefault(str(node), {}).setdefault(sweeps.ADMISSION, f"{entry.outcome}: {reason}")
    results.append(results.PoolOutcome(str(pool.name), result.exit_code, open_nodes), os.environ)
    return Acted(pools.odd(skew), tuple(failures), tuple(warnings))


def _line(event: pool_results.Event) -> str:
    share = f"{event.done} of {event.total} done" if event.done is not None and event.total is not None else None
    head = " ".join(part for part in (event.stage, event.node) if part)
    text = f"{head}: {event.text}" if head else event.text
    return f"{text} ({share})" if share else text
