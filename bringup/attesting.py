"""Signed statements about the nodes of an audit: one file per node that answered."""

from __future__ import annotations

from pathlib import Path

from bringup.audit import Audit
from lockstep.base import errors, replacing
from lockstep.base.names import NodeName, PoolName
from pinsets import signing, statements
from pinsets.statements import Statement

__all__ = ["statements_of", "write"]


def statements_of(audit: Audit) -> dict[NodeName, Statement]:
    """The statement of every node that answered, those held or in repair too; of the others nothing can be stated."""
    found = {}
    for pool in audit.pools:
        slots = {node.name: str(node.slot) for node in pool.pool.nodes} if pool.pool is not None else {}
        lock = audit.reading.locks.get(PoolName(pool.name))
        for name, verdict in {**pool.comparison.nodes, **pool.comparison.apart}.items():
            facts = pool.facts.get(name)
            if facts is None or facts.unreachable is not None:
                continue
            found[name] = statements.of_node(
                verdict, facts, slot=slots.get(name, str(name)), pool=pool.name, fleet=audit.fleet, lock=lock
            )
    return found


def write(audit: Audit, key: Path, folder: Path) -> tuple[Path, ...]:
    """Sign the statements with a private key and write ``NODE.intoto.json`` into ``folder``; the files, in node order.

    Raises `errors.InputError` for a key that cannot be used, before anything is
    written, and `errors.EngineError` when a file cannot be written.
    """
    signer = signing.private_key(key)
    texts = {name: signing.sign(statement, signer) for name, statement in sorted(statements_of(audit).items())}
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / statements.file_name(name)
            replacing.write(path, text)
            written.append(path)
    except OSError as error:
        raise errors.EngineError(
            f"cannot write {folder}: {error.strerror}", hint="see space and rights there"
        ) from error
    return tuple(written)
