"""Tables of the journal. Nothing outside this package sees them."""

from __future__ import annotations

from sqlalchemy import Column, Float, Integer, MetaData, String, Table, Text

__all__ = ["SCHEMA", "metadata"]

SCHEMA = 1
"""Raised with every change of the tables; a journal of a newer schema is refused, an older one is migrated."""

metadata = MetaData()


def _name(column: str, *, key: bool = False) -> Column[str]:
    return Column(column, String(255), primary_key=key, nullable=False)


meta = Table("meta", metadata, _name("name", key=True), Column("value", Text, nullable=False))

pools = Table(
    "pools",
    metadata,
    _name("fleet", key=True),
    _name("pool", key=True),
    Column("nodes", Text, nullable=False),  # JSON list
    Column("seen", Float, nullable=False),
)

locks = Table(
    "locks",
    metadata,
    _name("full", key=True),
    _name("job"),
    Column("text", Text, nullable=False),  # canonical JSON, kept by content
)

assignments = Table(
    "assignments",
    metadata,
    _name("fleet", key=True),
    _name("node", key=True),
    _name("serial", key=True),
    _name("lock"),
    _name("job"),
    Column("previous", String(255)),
    Column("since", Float, nullable=False),
)

admissions = Table(
    "admissions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    _name("fleet"),
    _name("node"),
    _name("slot"),
    _name("serial"),
    Column("generation", Integer, nullable=False),
    _name("lock"),
    _name("job"),
    Column("versions", Text, nullable=False),  # JSON object
    _name("burnin"),
    Column("at", Float, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    _name("fleet"),
    _name("verb"),
    _name("pool"),
    Column("owner", Text, nullable=False),  # JSON object
    Column("started", Float, nullable=False),
    Column("ended", Float),
    Column("outcome", String(255)),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run", Integer, nullable=False),
    _name("fleet"),
    _name("node"),
    _name("serial"),
    Column("generation", Integer, nullable=False),
    _name("stage"),
    _name("lock"),
    Column("started", Float, nullable=False),
    Column("ended", Float),
    Column("outcome", String(32)),
    Column("reason", Text, nullable=False),
    Column("boot_before", String(64)),
    Column("boot_after", String(64)),
)

leases = Table(
    "leases",
    metadata,
    _name("fleet", key=True),
    _name("node", key=True),
    Column("token", Integer, nullable=False),
    Column("owner", Text),  # JSON object; NULL: free, the row only keeps the token
    Column("purpose", Text, nullable=False),
    Column("expires", Float, nullable=False),
)

generations = Table(
    "generations",
    metadata,
    _name("fleet", key=True),
    _name("slot", key=True),
    Column("generation", Integer, nullable=False),
    Column("at", Float, nullable=False),
)

host_keys = Table(
    "host_keys",
    metadata,
    _name("fleet", key=True),
    _name("node", key=True),
    Column("generation", Integer, primary_key=True, nullable=False),
    Column("keys", Text, nullable=False),  # JSON list
    _name("origin"),
    Column("at", Float, nullable=False),
)

fences = Table(
    "fences",
    metadata,
    _name("fleet", key=True),
    _name("node", key=True),
    _name("kind"),
    Column("reason", Text, nullable=False),
    Column("at", Float, nullable=False),
)

findings_seen = Table(
    "findings_seen",
    metadata,
    _name("fleet", key=True),
    _name("pool", key=True),
    Column("seen", Text, nullable=False),  # JSON list
    Column("at", Float, nullable=False),
)

replacements = Table(
    "replacements",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    _name("fleet"),
    _name("node"),
    _name("slot"),
    Column("generation", Integer, nullable=False),
    Column("started", Float, nullable=False),
    Column("ended", Float),
)

replacement_steps = Table(
    "replacement_steps",
    metadata,
    Column("replacement", Integer, primary_key=True, nullable=False),
    _name("name", key=True),
    Column("at", Float, nullable=False),
    Column("detail", Text, nullable=False),  # JSON object
)
