"""Each file of tests/data/facts is one case: what a source printed, and what the parser must make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bringup.parsers import host, nvidia, packages
from bringup.parsers.records import Record
from lockstep.base import documents, issues
from pinsets.facts import ABSENT, Unreadable

CASES = sorted((Path(__file__).parents[1] / "data" / "facts").rglob("*.yaml"))


def _load(path: Path) -> dict[str, Any]:
    report = issues.Report()
    document = documents.load(path, report)
    assert document is not None, report.issues
    return dict(document.data)


def _files(case: Mapping[str, Any]) -> host.Sections:
    found: dict[str, Any] = {}
    for name, value in case.get("files", {}).items():
        if isinstance(value, str):
            found[name] = value
        else:
            found[name] = ABSENT if value.get("absent") else Unreadable("needs root")
    return found


def _record(case: Mapping[str, Any]) -> Record | Unreadable:
    out, err = str(case.get("out", "")).encode(), str(case.get("err", "")).encode()
    record = Record("x", int(case.get("rc", 0)), int(case.get("ms", 10)), out, err)
    return record.unreadable or record


def _text(value: object) -> object:
    """Observations as a case file writes them."""
    if isinstance(value, tuple):
        return [_text(part) for part in value]
    return value if value is None or isinstance(value, (list, dict)) else str(value)


def _smi(case: Mapping[str, Any]) -> object:
    found = nvidia.smi(_record(case))
    return found if isinstance(found, Unreadable) else [f"{gpu.address} {gpu.vbios}" for gpu in found.gpus]


def _versions(case: Mapping[str, Any]) -> object:
    found = packages.parse(_record(case))
    return {name: _text(packages.version_of(found, (name,))) for name in case["expect"]}


PARSERS: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "module_running": lambda case: nvidia.module_running(_files(case)),
    "module_ondisk": lambda case: nvidia.module_ondisk(_record(case)),
    "tool_version": lambda case: nvidia.tool_version(_record(case), case.get("after", "version")),
    "nccl": lambda case: nvidia.nccl(_record(case)),
    "imex_domain": lambda case: nvidia.imex_domain(_record(case)),
    "smi": _smi,
    "kernel_next": lambda case: host.kernel_next(_files(case), _record(case)),
    "serial": lambda case: host.serial(_files(case), _record(case)),
    "cuda_toolkit": lambda case: host.cuda_toolkit(_files(case)),
    "admission": lambda case: host.admission(_files(case)),
    "busy": lambda case: host.busy(host.holders(_record(case)), int(case["user"]), case.get("daemons", ())),
    "daemon": lambda case: host.daemon(host.holders(_record(case)), case["name"], case["ondisk"]),
    "version_of": _versions,
}


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}: {path.stem}")
def test_the_case_parses_as_it_says(path: Path) -> None:
    case = _load(path)
    assert _text(PARSERS[case["parse"]](case)) == _expected(case["expect"])


def _expected(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_expected(part) for part in value]
    if isinstance(value, dict):
        return {key: _expected(part) for key, part in value.items()}
    # Documents keep scalars as they are written.
    return None if value in (None, "null") else str(value)


def test_there_are_cases_for_every_parser() -> None:
    assert {_load(path)["parse"] for path in CASES} == set(PARSERS)
