"""The schemas of records: read, merge and compare them, and change a table to fit."""

from __future__ import annotations

from lakefeed.records.schema.changes import Change
from lakefeed.records.schema.merge import SchemaMerge, merge_schemas

__all__ = ["Change", "SchemaMerge", "merge_schemas"]
