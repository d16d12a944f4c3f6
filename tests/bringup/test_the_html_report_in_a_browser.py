"""The HTML report as a browser shows it: offline, filtered, with hostile names, and with its colours on the screen."""

from __future__ import annotations

import html.parser
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from bringup import report_html
from lockstep.base.errors import ExitCode
from tests.bringup import hostile

pytestmark = pytest.mark.browser
GREEN, RED = (0x2F, 0x8F, 0x4E), (0xC0, 0x39, 0x2B)


def _chromium(tmp_path: Path, *arguments: str) -> str:
    """Without a network: every host name resolves to nothing."""
    done = subprocess.run(
        [
            "chromium-headless-shell",
            "--no-sandbox",
            "--disable-gpu",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1400,900",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


class Page(html.parser.HTMLParser):
    """Tags with their attributes, and the text of the status line."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.status = ""
        self.title = ""
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        self._inside = "status" if found.get("id") == "count" else tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside == "status":
            self.status += data
        if self._inside == "title":
            self.title += data

    def rows(self) -> tuple[int, int]:
        """(shown, hidden) findings."""
        found = [attributes for tag, attributes in self.tags if tag == "tr" and "data-n" in attributes]
        hidden = sum("hidden" in attributes for attributes in found)
        return len(found) - hidden, hidden


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "audit.html"
    path.write_text(report_html.page(hostile.found(), ExitCode.DRIFT), encoding="utf-8")
    return path


def _dom(tmp_path: Path, page: Path, fragment: str = "") -> Page:
    return Page(_chromium(tmp_path, "--dump-dom", page.as_uri() + fragment))


def test_its_own_script_runs_and_no_machines_text_does(tmp_path: Path, page: Path) -> None:
    seen = _dom(tmp_path, page)
    assert seen.title == "lockstep audit · fleet"
    assert seen.status == "5 of 5 findings"
    assert "img" not in {tag for tag, _ in seen.tags}
    assert sum(tag == "script" for tag, _ in seen.tags) == 1
    names = [attributes["data-node"] for tag, attributes in seen.tags if "data-node" in attributes]
    assert len(names) == 6


def test_findings_are_filtered_by_words_and_by_node(tmp_path: Path, page: Path) -> None:
    assert _dom(tmp_path, page, "#q=x00").rows() == (1, 4)
    assert _dom(tmp_path, page, "#severity=warn").rows() == (0, 5)
    by_node = _dom(tmp_path, page, "#node=gpu-1")
    assert by_node.rows() == (1, 4)
    assert by_node.status == "1 of 5 findings · node gpu-1"


def test_it_names_nothing_outside_of_itself(page: Path) -> None:
    for _, attributes in Page(page.read_text(encoding="utf-8")).tags:
        assert not {"src", "href", "action", "style", "onclick", "onerror"} & set(attributes)


def test_good_and_bad_nodes_are_on_the_screen_in_their_colours(tmp_path: Path, page: Path) -> None:
    shot = tmp_path / "shot.png"
    _chromium(tmp_path, f"--screenshot={shot}", page.as_uri())
    colours = _colours(shot.read_bytes())
    assert {GREEN, RED} <= colours


def _colours(png: bytes) -> set[tuple[int, ...]]:
    """Every colour of an 8-bit RGB or RGBA image (PNG specification, filter types 0 to 4)."""
    assert png.startswith(b"\x89PNG")
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8
    channels = {2: 3, 6: 4}[kind]
    packed, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            packed += png[at + 8 : at + 8 + length]
        at += 12 + length
    raw, stride = zlib.decompress(packed), width * channels
    above, colours = bytearray(stride), set()
    for row in range(height):
        start = row * (stride + 1)
        line = bytearray(raw[start + 1 : start + 1 + stride])
        _unfilter(raw[start], line, above, channels)
        colours |= {tuple(line[index : index + 3]) for index in range(0, stride, channels)}
        above = line
    return colours


def _unfilter(kind: int, line: bytearray, above: bytearray, step: int) -> None:
    for index in range(len(line)):
        left = line[index - step] if index >= step else 0
        up, corner = above[index], above[index - step] if index >= step else 0
        nearest = min((left, up, corner), key=lambda one: abs(left + up - corner - one))
        line[index] = (line[index] + (0, left, up, (left + up) // 2, nearest)[kind]) & 0xFF
