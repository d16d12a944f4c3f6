"""JUnit and CTRF against the schemas that others publish, fetched by digest when the test runs and kept by nobody.

JUnit has no standard of its own; what its readers agree on is the XML schema of Jenkins' xUnit plugin. pytest, which
writes the same form, ships it in its source archive, whose hash stands in requirements/all.txt already. CTRF's own
schema is in its makers' npm package `ctrf`, for which this project has no other use: where there is no npm, that test
is skipped, and the model in test_forms_of_an_audit.py stands alone.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema

from bringup import audit, report_ctrf, report_junit
from pinsets.findings import Verdict
from tests.bringup import hostile

JUNIT = "testing/example_scripts/junit-10.xsd"
CTRF = "ctrf@0.3.0"
CTRF_SHA512 = "2luVgKCF/A/pgMKY54AUdicCNbU+Hy3Bl+xwcp98inASt/0fnoNC/A4Bwh/GO47cIuD5c7SS3MY/DY42dPf4zQ=="
OFFLINE = ("Connection", "timed out", "error sending request", "ENOTFOUND", "ECONNREFUSED", "EAI_AGAIN")


def _mixed() -> audit.Audit:
    """A node in step, drifted ones, one that is silent, one held: every element that the form has."""
    found = hostile.found()
    pool = found.pools[0]
    names = list(pool.comparison.nodes)
    nodes = dict(pool.comparison.nodes)
    silent = dataclasses.replace(nodes.pop(names[1]), verdict=Verdict.UNREACHABLE)
    held = nodes.pop(names[2])
    nodes[silent.node] = silent
    comparison = dataclasses.replace(pool.comparison, nodes=nodes, apart={held.node: held})
    return dataclasses.replace(found, pools=(dataclasses.replace(pool, comparison=comparison),))


AUDITS: dict[str, Callable[[], audit.Audit]] = {"hostile": hostile.found, "waived": hostile.waived, "mixed": _mixed}


def _fetched(words: list[str], folder: Path) -> None:
    """Run a registry's client; without a network the test is skipped (and fails where the tier must run)."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0 and any(word in done.stderr for word in OFFLINE):
        pytest.skip(f"no package registry: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def _member(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        (path,) = [path for path in tar.getnames() if path.endswith(f"/{name}")]
        file = tar.extractfile(path)
        assert file is not None
        return file.read()


@pytest.fixture(scope="module")
def junit(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> xmlschema.XMLSchema:
    """Jenkins' schema, from the source archive of the pytest that runs this test."""
    folder = tmp_path_factory.mktemp("pytest")
    pinned = re.search(r"^(pytest==\S+).*?(?=^    #)", (checkout / "requirements" / "all.txt").read_text(), re.M | re.S)
    assert pinned is not None
    (folder / "one.txt").write_text(pinned[1] + "\n")
    # uv says where the archive lies; pip would run its build to fetch it.
    words = ["pip", "compile", "--quiet", "--no-deps", "--format", "pylock.toml", "one.txt", "-o", "pylock.toml"]
    _fetched([str(Path(sys.executable).with_name("uv")), *words], folder)
    (package,) = tomllib.loads((folder / "pylock.toml").read_text())["packages"]
    archive = folder / "pytest.tar.gz"
    with urllib.request.urlopen(package["sdist"]["url"], timeout=60) as stream:
        archive.write_bytes(stream.read())
    assert f"--hash=sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}" in pinned[0]
    return xmlschema.XMLSchema(_member(archive, JUNIT).decode())


@pytest.mark.registry
@pytest.mark.parametrize("name", AUDITS)
def test_junit_fits_the_schema_of_jenkins(junit: xmlschema.XMLSchema, name: str) -> None:
    text = report_junit.junit(AUDITS[name]())
    junit.validate(text)
    assert not junit.is_valid(text.replace("<testcase ", "<testcase verdict='drifted' "))
    assert not junit.is_valid(text.replace("<system-out>", "<finding/><system-out>"))


@pytest.fixture(scope="module")
def ctrf(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """CTRF's own schema."""
    if shutil.which("npm") is None:
        pytest.skip("no npm here; this project needs it for nothing else")
    folder = tmp_path_factory.mktemp("ctrf")
    _fetched(["npm", "pack", "--silent", "--ignore-scripts", CTRF], folder)
    (archive,) = folder.glob("*.tgz")
    assert base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() == CTRF_SHA512
    found: dict[str, Any] = json.loads(_member(archive, "dist/ctrf-schema-0.0.json"))
    return found


@pytest.mark.parametrize("name", AUDITS)
def test_ctrf_fits_the_schema_of_its_makers(ctrf: dict[str, Any], name: str) -> None:
    data = json.loads(report_ctrf.ctrf(AUDITS[name]()))
    jsonschema.validate(data, ctrf)
    data["results"]["tests"][0]["status"] = "drifted"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, ctrf)
