"""The root command: verbs by name, loaded when called; errors to exit codes."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import io
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import lockstep
from lockstep.base import errors, plaintext

__all__ = ["VERBS", "build", "run"]

VERBS: dict[str, str] = {
    "audit": "Read every node and GPU, and say which deviate from their lock or from each other.",
    "verify": "Check signed statements about nodes that `audit --sign` wrote.",
    "check": "Read a fleet's files and report every mistake; contacts nothing.",
    "show": "Print a fleet as a tree or as JSON.",
    "pin": "Pinsets and locks: list, show, query, lint, diff, lock, import, from-node, export.",
    "up": "Bring an environment into step through the Pulumi engine.",
    "env": 'Print the environment for plain `pulumi` on a stack: eval "$(lockstep env lab)".',
    "replace": "Replace a failed node; it rejoins only with versions equal to its predecessor's.",
    "bringup": "What `up` does to the machines, without Pulumi.",
    "place": "Why these GPUs and no others, and what would fit: explain, simulate.",
    "import": "Make a fleet file from an Ansible inventory.",
    "lab": "A fleet in a box on this machine: up, status, break, mend, exec, down.",
    "tools": "Build and find the engine programs: build, status.",
    "probe": "Show the exact script that reads a node.",
    "preflight": "Inside a job: compare what its ranks have really mapped, and name the odd one.",
}
"""Verb → its one line. The module is ``lockstep.cli.VERB`` (``import`` is ``importing``). It defines ``command``, a
function with typer annotations, or ``app``, a Typer with commands of its own.

A table and not imports: `lockstep audit --help` must not pay for the engine's libraries.
"""

_MODULES = {"import": "importing"}


def _module(verb: str) -> str:
    return f"lockstep.cli.{_MODULES.get(verb, verb)}"


def _not_loaded() -> None:
    """Stands in a listing for a verb whose module was not asked for."""


def _print_version(wanted: bool) -> None:
    """Eager, so that `lockstep --version` needs no verb."""
    if wanted:
        print(lockstep.__version__)
        raise typer.Exit


def build(loaded: Sequence[str]) -> typer.Typer:
    """The root command with the verbs of ``loaded`` in full, the others as names and one line."""
    root = typer.Typer(
        name="lockstep",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @root.callback(help=f"{lockstep.__doc__}\n\nEvery verb has --help with an example. Exit codes: docs/cli.md.")
    def _before(
        version: Annotated[
            bool,
            typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_print_version),
        ] = False,
        debug: Annotated[bool, typer.Option("--debug", help="Show what goes on, and whole tracebacks.")] = False,
        root: Annotated[
            str | None,
            typer.Option("--root", metavar="FOLDER", help="The checkout; default: the one around this folder."),
        ] = None,
    ) -> None:
        if root is not None:
            # The provider plugin and other children must find the same one.
            os.environ["LOCKSTEP_ROOT"] = str(Path(root).absolute())
        logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, format="%(name)s: %(message)s")
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)

    for verb, line in VERBS.items():
        if importlib.util.find_spec(_module(verb)) is None:
            continue
        if verb not in loaded:
            root.command(verb, help=line)(_not_loaded)
            continue
        module = importlib.import_module(_module(verb))
        if hasattr(module, "app"):
            root.add_typer(module.app, name=verb, help=line, no_args_is_help=True)
        else:
            root.command(verb, help=module.command.__doc__ or line)(module.command)
    return root


def run(argv: Sequence[str] | None = None) -> int:
    """The console script: the exit code of ``argv``, every error that a person is meant to read printed.

    A verb ends well by returning, and with another code by ``raise typer.Exit(code)``.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    try:
        code = _call(words)
        sys.stdout.flush()
        return code
    except typer.Exit as leaving:
        return leaving.exit_code
    except errors.LockstepError as error:
        if "--debug" in words:
            _print_traceback()
        # Files and machines have their say in a message: nothing of it may move a terminal.
        print(plaintext.visible(error.diagnostics(), lines=True), file=sys.stderr)
        return int(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted; the same command goes on where this one stopped", file=sys.stderr)
        return int(errors.ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader (head, less) left.
        _drop_output()
        return int(errors.ExitCode.INTERNAL)
    except SystemExit as leaving:
        # What rich makes of a reader that left: code 1, which says that drift was found.
        if isinstance(leaving.__context__, BrokenPipeError):
            return int(errors.ExitCode.INTERNAL)
        raise
    except OSError as error:
        return _unwritten(error)
    except ModuleNotFoundError as error:
        return _lacking(error, words)
    except Exception:  # noqa: BLE001 - the last resort, told whole
        return _fault()


_EXTRAS = "lockstep-fleet[bringup,engine,placement] @ git+URL"
"""What the base lacks, which is made for a first audit and little else."""


def _unwritten(error: OSError) -> int:
    """A disk that is full is no fault of ours; any other is."""
    if error.errno not in _FULL:
        return _fault()
    _drop_output()
    place = error.filename or "the output"
    print(plaintext.visible(f"cannot write {place}: {error.strerror}; what was printed is cut"), file=sys.stderr)
    return int(errors.ExitCode.INTERNAL)


def _lacking(error: ModuleNotFoundError, words: Sequence[str]) -> int:
    missing = _foreign(error)
    if missing is None:
        return _fault()
    if "--debug" in words:
        _print_traceback()
    print(f"`lockstep {_verb(words)}` needs {missing}, which is not installed here", file=sys.stderr)
    print(f"  hint: install it with its extras, '{_EXTRAS}', or use a checkout (`make`)", file=sys.stderr)
    return int(errors.ExitCode.INTERNAL)


def _foreign(error: ModuleNotFoundError) -> str | None:
    """The package of somebody else that is missing; None for a module of our own."""
    top = (error.name or "").partition(".")[0]
    ours = {"lockstep", "inventory", "pinsets", "placement", "manifests", "bringup", "stacks", "lab"}
    return top if top and top not in ours else None


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _fault() -> int:
    """A fault of ours. Python would leave with 1, which says that drift was found."""
    _print_traceback()
    print("internal error; please report it with the lines above", file=sys.stderr)
    return int(errors.ExitCode.INTERNAL)


def _open_streams() -> None:
    """Something to print on, whoever started us: no stream at all is as /dev/null, and a terminal that lacks a
    character shows its code in place of it."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """A second error while Python flushes at its end would hide the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_traceback() -> None:
    import traceback

    print(plaintext.visible(traceback.format_exc(), lines=True), file=sys.stderr)


def _verb(words: Sequence[str]) -> str:
    named = [word for index, word in enumerate(words) if index == 0 or words[index - 1] != "--root"]
    return next((word for word in named if not word.startswith("-")), "")


def _call(words: list[str]) -> int:
    """Parse and run. Not Typer's own ``main``: that one hides interrupts and broken pipes behind codes of its own."""
    command = typer.main.get_command(build([_verb(words)]))
    try:
        with command.make_context("lockstep", list(words)) as context:  # it empties what it is given
            command.invoke(context)
    except typer.TyperException as error:
        # Usage errors know how to show themselves with the verb's usage line.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        return int(errors.ExitCode.BAD_INPUT)
    return int(errors.ExitCode.IN_STEP)


if __name__ == "__main__":
    sys.exit(run())
