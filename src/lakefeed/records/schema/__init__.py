"""Schema evolution: what a new writer's schema means for the reader's schema and for the table."""

from __future__ import annotations

from lakefeed.clients.iceberg.sql import set_properties
from lakefeed.records.schema.ddl import statements
from lakefeed.records.schema.differences import Change, renames
from lakefeed.records.schema.evolution import ChangePolicy, Evolution, SchemaWarning
from lakefeed.records.schema.fit import aligned
from lakefeed.records.schema.history import Entry, History, read_history, read_ids, with_entries
from lakefeed.records.schema.merge import SchemaMerge, merged

__all__ = [
    "Change",
    "ChangePolicy",
    "Entry",
    "Evolution",
    "History",
    "SchemaMerge",
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
