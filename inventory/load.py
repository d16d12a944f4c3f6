"""Fleet and SKU files → `model.Fleet` and `model.Sku`, everything wrong reported at once.

Paths inside a fleet file are relative to its folder; ``~`` expands, and so do the
two prefixes of `PREFIXES`, which name folders of this machine and not of a file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from inventory import checks, model, unfolding
from lockstep.base import collection, credentials, documents, errors, issues, settings
from lockstep.base.names import FleetName, PinsetName, PoolName

__all__ = ["PREFIXES", "find", "fleet", "known_fleets", "known_skus", "parse", "read", "sku"]

PREFIXES: Final = ("$LOCKSTEP_STATE/", "$LOCKSTEP_LABS/")
"""`$LOCKSTEP_STATE/identity` lies in the state folder, `$LOCKSTEP_LABS/lab/identity` below the folder of all labs:
a committed fleet file can so name keys that no checkout holds. No other variable is expanded."""

_HERE = Path(__file__).parent


def fleet(name_or_path: str, where: settings.Settings | None = None, more: Sequence[checks.Check] = ()) -> model.Fleet:
    """The fleet of that name in ``inventory/fleets/`` of the checkout, or in the file of that path.

    ``more`` are checks from a layer above (`pinsets.checks`), run beside our own.
    Raises `errors.InputError` that carries every issue with file, line and hint.
    """
    report = issues.Report()
    found = read(name_or_path, where, report, more)
    report.raise_if_errors(f"fleet {name_or_path}")
    assert found is not None  # noqa: S101 - `read` gives None only with errors
    return found


def read(
    name_or_path: str, where: settings.Settings | None, report: issues.Report, more: Sequence[checks.Check] = ()
) -> model.Fleet | None:
    """As `fleet`, with issues (warnings too) going to ``report``; None when it got errors."""
    places = where or settings.load()
    path = find(name_or_path, places)
    document = documents.load(path, report)
    return _build(document, path, places, report, more) if document else None


def parse(text: str, path: Path, where: settings.Settings, report: issues.Report) -> model.Fleet | None:
    """A fleet from YAML text that is not on disk (yet); ``path`` is where it would lie."""
    document = documents.parse(text, documents.place(path), report)
    return _build(document, path, where, report, ()) if document else None


def find(name_or_path: str, where: settings.Settings) -> Path:
    """The absolute path of a fleet file. Raises `errors.InputError` with the names that exist."""
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path).expanduser()
        if not path.is_file():
            raise errors.InputError(f"there is no fleet file {name_or_path}")
        return path.resolve()
    known = known_fleets(where)
    if name_or_path not in known:
        hint = documents.did_you_mean(name_or_path, sorted(known)) or "give the path of a fleet file"
        raise errors.InputError(f"there is no fleet `{name_or_path}` in inventory/fleets", hint=hint)
    return known[name_or_path]


def known_fleets(where: settings.Settings) -> dict[str, Path]:
    """Name → file of the fleets of the checkout; empty outside of one."""
    folder = where.checkout / "inventory" / "fleets" if where.checkout else None
    return {path.stem: path.resolve() for path in sorted(folder.glob("*.yaml"))} if folder else {}


def known_skus(where: settings.Settings | None = None) -> dict[str, Path]:
    """Name → file of the SKUs: those of the checkout (None: that we stand in), and those that ship with us."""
    folders = [_HERE / "skus"]
    checkout = (where or settings.load()).checkout
    if checkout is not None:
        folders.append(checkout / "inventory" / "skus")
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def sku(name: str, where: settings.Settings | None = None) -> model.Sku:
    """The SKU of that name. Raises `errors.InputError` with every issue of its file."""
    report = issues.Report()
    found = read_sku(name, where, report)
    report.raise_if_errors(f"SKU {name}")
    if found is None:
        known = sorted(known_skus(where))
        raise errors.InputError(f"there is no SKU `{name}`", hint=documents.did_you_mean(name, known))
    return found


def read_sku(name: str, where: settings.Settings | None, report: issues.Report) -> model.Sku | None:
    """The SKU of that name; None when there is none, or when its file has errors, which go to ``report``."""
    path = known_skus(where).get(name)
    document = documents.load(path, report) if path else None
    found = document.model(model.SkuFile, report) if document else None
    if document is None or found is None:
        return None
    if found.sku != name:
        report.error(document.path, document.line("sku"), f"`sku: {found.sku}` is not the file's name `{name}`")
        return None
    lists: list[tuple[tuple[str, ...], dict[str, str]]] = [(("gpus",), found.gpus), (("nics",), found.nics)]
    lists += [(("instances", kind), named) for kind, named in found.instances.items()]
    for loc, instances in lists:
        if len(set(instances.values())) != len(instances):
            report.error(document.path, document.line(*loc), f"`{'.'.join(loc)}` names one slot twice")
            return None
    return found


@collection.paused()
def _build(
    document: documents.Document,
    path: Path,
    where: settings.Settings,
    report: issues.Report,
    more: Sequence[checks.Check],
) -> model.Fleet | None:
    before = len(report.errors)
    file = document.partial(model.FleetFile, report)
    if file is None:
        return None
    placed = unfolding.nodes(file, document, report)
    skus: dict[str, model.Sku] = {}
    for name in {pool.sku for pool in file.pools} - {documents.PLACEHOLDER}:
        if (found := read_sku(name, where, report)) is not None:
            skus[name] = found
    context = checks.Context(file, document, placed, skus, tuple(sorted(known_skus(where))), where.checkout)
    for check in (*checks.CHECKS, *more):
        check(context, report)
    if len(report.errors) > before:
        return None
    folder = path.parent
    pools = tuple(
        model.Pool(
            name=PoolName(entry.name),
            sku=skus[entry.sku],
            os=entry.os,
            pinset=PinsetName(entry.pinset),
            sources=entry.sources,
            disruption=entry.disruption,
            nodes=tuple(_resolved_bmc(one.node, folder, where) for one in placed if one.pool_index == index),
            line=document.line("pools", index, "name"),
        )
        for index, entry in enumerate(file.pools)
    )
    return model.Fleet(
        name=FleetName(file.fleet),
        ssh=_resolved_ssh(file.ssh, folder, where),
        repositories=tuple(_resolved_repository(entry, folder, where) for entry in file.repositories),
        pools=pools,
        path=path,
    )


def _resolved_ssh(ssh: model.Ssh, folder: Path, where: settings.Settings) -> model.Ssh:
    identity = ssh.identity
    if identity is not None and identity.file is not None:
        identity = credentials.Reference(file=_absolute(identity.file, folder, where))
    known_hosts = _absolute(ssh.known_hosts, folder, where) if ssh.known_hosts else None
    return ssh.model_copy(update={"identity": identity, "known_hosts": known_hosts})


def _resolved_bmc(node: model.Node, folder: Path, where: settings.Settings) -> model.Node:
    bmc = node.bmc
    secret = bmc.credentials if bmc is not None else None
    if bmc is None or (bmc.ca is None and (secret is None or secret.file is None)):
        return node
    update: dict[str, object] = {}
    if bmc.ca is not None:
        update["ca"] = _absolute(bmc.ca, folder, where)
    if secret is not None and secret.file is not None:
        update["credentials"] = credentials.Reference(file=_absolute(secret.file, folder, where))
    return dataclasses.replace(node, bmc=bmc.model_copy(update=update))


def _resolved_repository(entry: model.Repository, folder: Path, where: settings.Settings) -> model.Repository:
    update: dict[str, object] = {}
    if entry.key is not None:
        update["key"] = _absolute(entry.key, folder, where)
    if entry.address.startswith("file:"):
        bare = entry.address.removeprefix("file:")
        bare = bare.removeprefix("//") if bare.startswith("///") else bare
        kind = "apt" if entry.apt is not None else "rpm"
        update[kind] = f"file:{_absolute(Path(bare), folder, where)}"
    return entry.model_copy(update=update)


def _absolute(path: Path, folder: Path, where: settings.Settings) -> Path:
    """``path`` of a fleet file in ``folder`` as an absolute path."""
    text = str(path)
    for prefix, base in zip(PREFIXES, (where.state, where.labs), strict=True):
        if text.startswith(prefix):
            return base / text.removeprefix(prefix)
    return (folder / path.expanduser()).absolute()
