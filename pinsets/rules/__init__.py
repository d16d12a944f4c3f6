"""What fits what, as data: `*.yaml` here, read by `load`, applied by `of_node`, `of_group`, `of_set` and `of_change`.

The forms of a condition are a closed list (`conditions`, `groups`); nothing in a
rule is evaluated as code. The catalogue for people is docs/rules.md.

May import: what `pinsets` may.
"""

from __future__ import annotations

from pinsets.rules.engine import of_change, of_group, of_node, of_set, reads
from pinsets.rules.files import load
from pinsets.rules.model import Breach, Outcome, Rule, Undecided
from pinsets.rules.worlds import Context

__all__ = [
    "Breach",
    "Context",
    "Outcome",
    "Rule",
    "Undecided",
    "load",
    "of_change",
    "of_group",
    "of_node",
    "of_set",
    "reads",
]
