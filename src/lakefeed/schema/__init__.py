"""Schema evolution: what a new writer's schema means for the reader's schema and for the table."""

from __future__ import annotations

from lakefeed.schema.ddl import set_properties, statements
from lakefeed.schema.differences import Change, renames
from lakefeed.schema.evolution import Evolution, Policy, SchemaWarning
from lakefeed.schema.fit import aligned
from lakefeed.schema.history import Entry, History, read_history, read_ids, with_entries
from lakefeed.schema.merge import Merge, merged

__all__ = [
    "Change",
    "Entry",
    "Evolution",
    "History",
    "Merge",
    "Policy",
    "SchemaWarning",
    "aligned",
    "merged",
    "read_history",
    "read_ids",
    "renames",
    "set_properties",
    "statements",
    "with_entries",
]
