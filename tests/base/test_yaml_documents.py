"""YAML with positions becomes a model, and every mistake names its line and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from lockstep.base import credentials as references
from lockstep.base import documents, issues


class Inner(documents.Model):
    port: int = Field(default=22, ge=1)
    name: str = "x"


class Outer(documents.Model):
    title: str
    inner: Inner = Inner()
    items: dict[str, Inner] = {}
    credentials: references.Reference | None = None


def _texts(text: str) -> list[str]:
    report = issues.Report()
    document = documents.parse(text, "f.yaml", report)
    if document is not None:
        document.model(Outer, report)
    return [issue.text() for issue in report.ordered()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("title: a\ninnner: {}\n", "f.yaml:2: error: unknown key `innner` (did you mean `inner`?)"),
        ("title: a\ninner:\n  prt: 3\n", "f.yaml:3: error: unknown key `inner.prt` (did you mean `port`?)"),
        (
            "title: a\nitems:\n  one: {port: 0}\n",
            "f.yaml:3: error: `items.one.port`: input should be greater than or equal to 1, got 0",
        ),
        ("inner: {}\n", "f.yaml:1: error: `title` is missing"),
        (
            "title: 13.0\n",
            'f.yaml:1: error: `title`: input should be a valid string, got 13.0 (write it in quotes: "13.0")',
        ),
        ("title: a\ntitle: b\n", "f.yaml:2: error: `title` stands here twice, first in line 1"),
        ("- a\n", "f.yaml:1: error: `the document`: a mapping of keys is needed"),
        ("", "f.yaml:1: error: the file is empty"),
        ("title: [\n", "f.yaml:2: error: not YAML: did not find expected node content"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, expected: str) -> None:
    assert _texts(text) == [expected]


def test_a_secret_written_in_place_of_a_reference_is_not_repeated() -> None:
    (line,) = _texts("title: a\ncredentials: admin:hunter2\n")
    assert "hunter2" not in line


def test_what_is_sound_is_still_given_to_further_checks() -> None:
    report = issues.Report()
    document = documents.parse("titel: a\ninner: {port: many, name: kept}\n", "f.yaml", report)
    assert document is not None
    found = document.partial(Outer, report)
    assert found is not None
    assert (found.title, found.inner.name, found.inner.port) == (documents.PLACEHOLDER, "kept", 22)
    assert len(report.errors) == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("2026-09-01", "2026-09-01"),
        ("0x10", 16),
        ("-7", -7),
        ("1.5e+3", 1500.0),
        ("'1'", "1"),
        ("true", True),
        ("~", None),
        ("!vault secret", "secret"),
        ("580.105.08", "580.105.08"),
        ("!!python/object/apply:os.system [ls]", ["ls"]),
    ],
)
def test_scalars_are_what_yaml_1_2_says_and_no_tag_runs(text: str, value: object) -> None:
    report = issues.Report()
    document = documents.parse(f"key: {text}\n", "f.yaml", report)
    assert document is not None
    assert document.data == {"key": value}


def test_anchors_and_merge_keys_are_read_where_they_are_used() -> None:
    report = issues.Report()
    document = documents.parse("a: &x {k: 1, l: 2}\nb:\n  <<: *x\n  l: 3\n", "f.yaml", report)
    assert document is not None
    assert document.data == {"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 3}}
    assert document.line("b", "l") == 4


def test_a_text_that_unfolds_to_itself_is_refused() -> None:
    report = issues.Report()
    assert documents.parse("a: &x [*x]\n", "f.yaml", report) is None
    assert "unfolds" in report.errors[0].message


def test_a_file_that_is_not_there_is_an_issue(tmp_path: Path) -> None:
    report = issues.Report()
    assert documents.load(tmp_path / "none.yaml", report) is None
    assert report.errors[0].message == "cannot be read: No such file or directory"
