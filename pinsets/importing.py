"""Files of other projects → a draft: which form it is, and reading it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lockstep.base import documents, errors, issues
from pinsets import import_aicr, import_azhpc, import_redistrib
from pinsets.drafts import Draft

__all__ = ["FORMS", "draft"]

FORMS: Final = ("azhpc", "aicr", "redistrib")
FILE_BYTES: Final = 16 * 1024 * 1024
"""The largest of these files is 100 kB."""
DEFAULT_PLATFORM: Final = "linux-x86_64"


def draft(paths: Sequence[Path], form: str | None = None, select: Sequence[str] = ()) -> Draft:
    """What the files say together, the first one winning; ``form`` None: told from the contents.

    ``select`` is the path of words for AzHPC, the platform for redistrib. Raises
    `errors.InputError` for a file that cannot be read or is of no such form, and for a
    selection that gives nothing.
    """
    found: Draft | None = None
    for path in paths:
        one = _one(path, form, select)
        if found is None:
            found = one
            continue
        found.source += f"; {one.source}"
        for component, pin in one.pins.items():
            if component in found.pins and found.pins[component].version != pin.version:
                found.leave(
                    f"{component} {pin.version}", f"{found.pins[component].version} stands there already ({path})"
                )
            found.pins.setdefault(component, pin)
        found.left_out += one.left_out
    if found is None:
        raise errors.InputError("no file is given")
    return found


def _one(path: Path, form: str | None, select: Sequence[str]) -> Draft:
    data = _read(path)
    kind = form or next((name for name, fits in _FITS.items() if fits(data)), None)
    if kind is None or not _FITS[kind](data):
        wanted = f"of the form {form}" if form else f"of any known form ({', '.join(FORMS)})"
        raise errors.InputError(f"is no file {wanted}", place=documents.place(path))
    try:
        if kind == "azhpc":
            return import_azhpc.draft(data, select, path.name)
        if kind == "redistrib":
            if len(select) > 1:
                raise ValueError("one platform at a time")
            return import_redistrib.draft(data, select[0] if select else DEFAULT_PLATFORM, path.name)
        if select:
            raise ValueError("a recipe is a selection already: give no `--select`")
        return import_aicr.draft(data, lambda name: _beside(path, name), path.name)
    except ValueError as error:
        raise errors.InputError(str(error), place=documents.place(path)) from error


_FITS: Final = {"azhpc": import_azhpc.fits, "aicr": import_aicr.fits, "redistrib": import_redistrib.fits}


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > FILE_BYTES:
            raise errors.InputError(f"is larger than {FILE_BYTES} bytes", place=documents.place(path))
        if path.suffix == ".json":
            return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.InputError(f"cannot be read: {error.strerror}", place=documents.place(path)) from error
    except UnicodeDecodeError as error:
        raise errors.InputError("is not UTF-8 text", place=documents.place(path)) from error
    except json.JSONDecodeError as error:
        place = f"{documents.place(path)}:{error.lineno}"
        raise errors.InputError(f"is no JSON: {error.msg}", place=place) from error
    except RecursionError as error:
        raise errors.InputError("is nested too deep", place=documents.place(path)) from error
    report = issues.Report()
    document = documents.load(path, report)
    report.raise_if_errors(documents.place(path))
    return document.data if document is not None else None


def _beside(path: Path, name: str) -> Mapping[str, Any] | None:
    """A file of the folder of recipes that ``path`` lies in; None when it is not there or leads out of it."""
    root = (path.parent.parent if path.parent.name == "overlays" else path.parent).resolve()
    file = (root / name).resolve()
    if not file.is_relative_to(root) or not file.is_file():
        return None
    data = _read(file)
    return data if isinstance(data, dict) else None
