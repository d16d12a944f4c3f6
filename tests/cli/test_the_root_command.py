"""Exit codes and messages of `lockstep` itself, through the same function as the console script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import lockstep
import lockstep.cli
from lockstep.cli import main

Verb = Callable[[str], None]


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Makes the verb `trial` of a module body, loaded by the same path as the real ones."""

    def make(body: str) -> None:
        (tmp_path / "trial.py").write_text(body)
        monkeypatch.setattr(lockstep.cli, "__path__", [*lockstep.cli.__path__, str(tmp_path)])
        monkeypatch.setitem(main.VERBS, "trial", "A verb of this test.")
        monkeypatch.delitem(sys.modules, "lockstep.cli.trial", raising=False)

    return make


def test_version_needs_no_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"{lockstep.__version__}\n"


def test_help_lists_verbs_and_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    assert "tools" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["nonsense"], ["--nonsense"], []])
def test_wrong_usage_is_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(words) == 2
    assert "Usage: lockstep" in capsys.readouterr().err


def test_a_verb_that_returns_is_exit_0(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    verb('def command() -> None:\n    """Says so."""\n    print("done")\n')
    assert main.run(["trial"]) == 0
    assert capsys.readouterr().out == "done\n"


def test_a_verb_chooses_its_exit_code(verb: Verb) -> None:
    verb('import typer\ndef command() -> None:\n    """Drifts."""\n    raise typer.Exit(1)\n')
    assert main.run(["trial"]) == 1


def test_an_input_error_prints_every_issue_with_its_line(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(
        "from lockstep.base import issues\n"
        "def command() -> None:\n"
        '    """Finds two mistakes."""\n'
        "    report = issues.Report()\n"
        '    report.error("fleet.yaml", 7, "unknown key pinsett", "did you mean pinset?")\n'
        '    report.error("fleet.yaml", 3, "no such SKU")\n'
        '    report.raise_if_errors("fleet trial")\n'
    )
    assert main.run(["trial"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "fleet.yaml:3: error: no such SKU",
        "fleet.yaml:7: error: unknown key pinsett (did you mean pinset?)",
        "fleet trial: 2 errors; nothing was touched",
    ]


def test_an_engine_error_is_exit_5_with_its_remedy(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(
        "from lockstep.base import errors\n"
        "def command() -> None:\n"
        '    """Fails."""\n'
        '    raise errors.EngineError("go is missing", hint="install Go")\n'
    )
    assert main.run(["trial"]) == 5
    assert capsys.readouterr().err == "go is missing\n  hint: install Go\n"


def test_a_real_interrupt_is_exit_130(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(
        "import os, signal, time\n"
        "def command() -> None:\n"
        '    """Interrupts itself as Ctrl-C would."""\n'
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(60)\n"
    )
    assert main.run(["trial"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_reader_that_left_prints_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "lockstep.cli.main", "--help"], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert done.returncode == 5
    assert done.stderr == ""


def test_root_names_the_checkout_from_any_folder(tmp_path: Path, checkout: Path) -> None:
    command = [sys.executable, "-m", "lockstep.cli.main", "--root", str(checkout), "show", "lab", "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["fleet"] == "lab"


def test_a_fault_of_ours_is_no_drift(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    verb("def command() -> None:\n    raise RuntimeError('a host that says \\x1b[2J')\n")
    assert main.run(["trial"]) == 5
    said = capsys.readouterr().err
    assert "RuntimeError: a host that says \\x1b[2J" in said
    assert "\x1b" not in said


def test_what_the_base_does_not_bring_is_named_with_what_brings_it(
    verb: Verb, capsys: pytest.CaptureFixture[str]
) -> None:
    verb("import an_engine.of_somebody\ndef command() -> None:\n    pass\n")
    assert main.run(["trial"]) == 5
    said = capsys.readouterr().err
    assert said.startswith(
        "`lockstep trial` needs an_engine, which is not installed here\n"
        "  hint: install it with its extras, 'lockstep-fleet["
    )
    assert "Traceback" not in said


def test_a_module_of_ours_that_is_missing_is_a_fault_of_ours(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    verb("import lockstep.nothing\ndef command() -> None:\n    pass\n")
    assert main.run(["trial"]) == 5
    assert "Traceback" in capsys.readouterr().err


def test_debug_shows_the_traceback_and_keeps_the_exit_code(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    verb("from lockstep.base import errors\ndef command() -> None:\n    raise errors.InputError('no such thing')\n")
    assert main.run(["--debug", "trial"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.endswith("no such thing\n")
