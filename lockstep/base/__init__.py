"""Errors, issues, documents, names, quantities, settings, credentials, journal, programs.

Knows nothing of fleets. May import: the standard library, pydantic, ruamel.yaml
(documents), SQLAlchemy (journal), ClusterShell (hostranges).
Import the modules, not objects from here: ``from lockstep.base import errors``.
"""
