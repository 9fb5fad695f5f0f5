"""Reads, merges and compares the schemas of records, and changes tables to fit them."""

from __future__ import annotations

from lakefeed.records.schema.changes import Change
from lakefeed.records.schema.merge import SchemaMerge, merge_schemas

__all__ = ["Change", "SchemaMerge", "merge_schemas"]
