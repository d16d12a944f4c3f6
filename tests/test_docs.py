"""Documents cannot lie: generated pages equal the code, links lead somewhere, the README's verbs exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from lockstep.cli import main

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_generated_pages_equal_the_code() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    stale = [name for name, text in generate.pages().items() if (ROOT / "docs" / name).read_text() != text]
    assert stale == [], "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_verb_that_the_readme_shows_exists() -> None:
    shown = set(re.findall(r"^\s*lockstep ([a-z]+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    assert shown
    assert shown <= set(main.VERBS)


@pytest.mark.parametrize("verb", sorted(main.VERBS))
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    spec = importlib.util.find_spec(f"lockstep.cli.{'importing' if verb == 'import' else verb}")
    assert spec is not None, f"{verb} is in the table of verbs and has no module"
    assert spec.origin is not None
    assert re.search(rf"lockstep {verb}\b", Path(spec.origin).read_text()), f"no example in {spec.origin}"


def test_adrs_are_numbered_without_gaps_and_indexed() -> None:
    folder = ROOT / "docs" / "adr"
    numbers = sorted(path.name[:4] for path in folder.glob("[0-9]*.md"))
    assert numbers == [f"{index + 1:04}" for index in range(len(numbers))]
    index = (folder / "README.md").read_text()
    assert [path.name for path in folder.glob("[0-9]*.md") if path.name not in index] == []


def _tracked_texts() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_registry_host() -> None:
    # Written with brackets so that this file does not name them either.
    hosts = re.compile(
        r"pr[o]xy\.gol[a]ng|py[p]i\.org|registry\.np[m]js|deb\.deb[i]an|static\.cr[a]tes|files\.pyth[o]nhosted"
    )
    found = [
        str(path.relative_to(ROOT))
        for path in _tracked_texts()
        if hosts.search(path.read_bytes().decode("utf-8", "replace"))
    ]
    assert found == []
