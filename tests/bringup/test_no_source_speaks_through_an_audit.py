"""Every source of facts, hostile in all it says, through every form: no shell, no terminal, no page obeys it."""

from __future__ import annotations

import html.parser
import json
import os
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from bringup import audit
from lockstep.base.errors import ExitCode
from lockstep.cli import audit_forms, audit_work, main
from pinsets import snapshots
from tests.bringup import hostile, hostile_sources
from tests.bringup.hostile_sources import ODD, OWNED, TEXT

SOURCES = (
    "hosts by paramiko",
    "hosts by openssh",
    "ansible-inventory",
    "slurm",
    "from-dir",
    "prometheus",
    "kubernetes",
)


@pytest.fixture(scope="module", params=SOURCES)
def read(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, audit.Audit]]:
    """What a source told, audited as `lockstep audit` does."""
    here, home = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch, hostile_sources.words(request.param, here, home) as words:
        patch.setenv("HOME", str(home))
        patch.setenv("PATH", f"{here}:{os.environ['PATH']}")
        for name in ("KUBECONFIG", "SSH_AUTH_SOCK", "LOCKSTEP_FACTS"):
            patch.delenv(name, raising=False)
        patch.chdir(here)
        yield request.param, audit_work.of_hosts(words, lambda *_: None)
        assert not list(here.rglob(OWNED))
        assert not list(home.rglob(OWNED))


class Page(html.parser.HTMLParser):
    """How often each tag stands in it, and whether one has a handler."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def _still(text: str) -> None:
    for character in text:
        category = unicodedata.category(character)
        assert category not in ("Cc", "Cf", "Cs", "Zl", "Zp") or character in "\n\t", repr(character)


def test_the_hostile_one_is_found_and_the_others_are_read(read: tuple[str, audit.Audit]) -> None:
    source, found = read
    (pool,) = found.pools
    assert not pool.comparison.nodes[ODD].verdict.in_step  # type: ignore[index]
    in_step = [name for name, verdict in pool.comparison.nodes.items() if verdict.verdict.in_step]
    assert in_step == list(hostile_sources.GOOD)
    assert any(TEXT[:5] in finding.observed for finding in pool.comparison.findings), source
    assert audit.exit_code(found) in (ExitCode.DRIFT, ExitCode.NOT_MEASURED)


@pytest.mark.parametrize("form", audit_forms.FORMS)
def test_no_form_lets_it_speak(
    read: tuple[str, audit.Audit],
    form: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = read[1]
    monkeypatch.setenv("COLUMNS", "9999")  # one line each, so that it can be looked for
    audit_forms.show(found, ExitCode.DRIFT, form, None)
    text = capsys.readouterr().out
    _still(text)
    assert ODD in text
    if form == "table":
        assert "[/x][bold red]" in text, "rich has read none of it as markup"
    if form in ("json", "sarif", "ctrf"):
        assert isinstance(json.loads(text), dict)
    if form == "jsonl":
        assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
    if form == "junit":
        assert ElementTree.fromstring(text).tag == "testsuites"
    if form == "prometheus":
        assert all(line.startswith(("# HELP lockstep_", "# TYPE lockstep_", "lockstep_")) for line in text.splitlines())
    if form == "html":
        page = Page(text)
        assert not page.handlers
        assert not {"img", "iframe", "b", "a", "object", "link"} & set(page.tags)
        assert page.tags["script"] == _scripts(tmp_path)
    audit_forms.show(found, ExitCode.DRIFT, form, tmp_path / "file")
    _still((tmp_path / "file").read_text(encoding="utf-8"))


def _scripts(tmp_path: Path) -> int:
    """Of the page of an audit in which nobody lies."""
    harmless = hostile.found({"gpu-1": "1.0"})
    audit_forms.show(harmless, ExitCode.DRIFT, "html", tmp_path / "harmless")
    return Page((tmp_path / "harmless").read_text()).tags["script"]


def test_stored_and_read_again_it_stays_still(
    read: tuple[str, audit.Audit], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    snapshots.write(tmp_path / "a.jsonl.gz", read[1].reading.snapshot)
    with hostile_sources.words("from-dir", tmp_path, tmp_path / "home") as words:
        assert words.folder is not None
        assert main.run(["audit", "--from-dir", str(words.folder), "--save", "b.jsonl.gz"]) in (1, 3)
    for command in (
        ["diff", "a.jsonl.gz", "b.jsonl.gz"],
        ["diff", "a.jsonl.gz", "b.jsonl.gz", "--format", "json"],
        ["merge", "a.jsonl.gz", "--fail-on", "info"],
        ["merge", "a.jsonl.gz", "--format", "json", "--output", "known.json"],
        ["--from-dir", str(words.folder), "--baseline", "known.json"],
    ):
        code = main.run(["audit", *command])
        said = capsys.readouterr()
        assert code in (0, 1, 2, 3), said.err
        _still(said.out + said.err)
    assert not (tmp_path / OWNED).exists()


@pytest.mark.parametrize("word", [TEXT, f"-oProxyCommand=touch {OWNED}", f"$(touch {OWNED})", "a\nb", ""])
@pytest.mark.parametrize(
    "words",
    [
        ("{}",),
        ("--hosts", "{}"),
        ("--hosts", "gpu-1", "--like", "{}"),
        ("--hosts", "gpu-1", "--pinset", "{}"),
        ("--hosts", "gpu-1", "--pinset", "2026-09-lab-gb200", "--sku", "{}"),
        ("--hosts", "gpu-1", "--baseline", "{}"),
        ("--hosts", "gpu-1", "--shard", "{}"),
        ("--hosts", "gpu-1", "--format", "{}"),
        ("--hosts", "gpu-1", "--transport", "{}"),
        ("--hosts", "gpu-1", "--max-unreachable", "{}"),
        ("--hosts", "gpu-1", "--output", "{}/x"),
        ("--ansible-inventory", "{}"),
        ("--ansible-inventory", "hosts.ini", "--group", "{}"),
        ("--slurm", "{}"),
        ("--from-dir", "{}"),
        ("--kube-context", "{}"),
        ("--prometheus", "{}"),
        ("--prometheus", "http://{}"),
        ("lab", "--pool", "{}"),
        ("lab", "--node", "{}"),
        ("lab", "--facts", "{}"),
        ("lab", "--since", "{}"),
        ("diff", "{}", "{}"),
        ("merge", "{}"),
    ],
    ids=" ".join,
)
def test_no_word_of_the_command_line_speaks_or_runs(
    words: tuple[str, ...],
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCKSTEP_STATE", str(tmp_path / "state"))
    for name in ("KUBECONFIG", "LOCKSTEP_FACTS", "LOCKSTEP_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.ini").write_text("[gpu]\ng1 ansible_host=127.90.98.99 ansible_port=1\n")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host *\n  HostName 127.90.98.99\n  Port 1\n")
    code = main.run(["audit", *(part.replace("{}", word) for part in words)])
    said = capsys.readouterr()
    assert code in (2, 3, 4, 5), said.out
    _still(said.out + said.err)
    assert "Traceback" not in said.err
    assert "internal error" not in said.err
    assert {path.name for path in tmp_path.iterdir()} <= {"hosts.ini", ".ssh", "state"}
