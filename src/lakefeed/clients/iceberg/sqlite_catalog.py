"""Create an Iceberg catalog in a SQLite file, for the local stack and for test cases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from lakefeed.errors import WorldError

# The same as V1_CREATE_CATALOG_SQL and CREATE_NAMESPACE_PROPERTIES_TABLE_SQL in org.apache.iceberg.jdbc.JdbcUtil.
_CATALOG_TABLES = """
CREATE TABLE IF NOT EXISTS iceberg_tables (
  catalog_name VARCHAR(255) NOT NULL,
  table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL,
  metadata_location VARCHAR(1000),
  previous_metadata_location VARCHAR(1000),
  iceberg_type VARCHAR(5),
  PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
  catalog_name VARCHAR(255) NOT NULL,
  namespace VARCHAR(255) NOT NULL,
  property_key VARCHAR(255) NOT NULL,
  property_value VARCHAR(1000),
  PRIMARY KEY (catalog_name, namespace, property_key)
);
"""


def make_catalog(file: Path) -> None:
    """Create the tables of Iceberg's JDBC catalog (schema version V1) in a SQLite file, unless the tables exist."""
    try:
        with closing(sqlite3.connect(file)) as connection:
            # With WAL, readers neither wait for a writer nor fail; Spark may commit while other processes query.
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(_CATALOG_TABLES)
    except sqlite3.OperationalError as error:
        hint = "free disk space, and make the folder writable for this user"
        raise WorldError(f"the catalog cannot be written: {error}", where=str(file), hint=hint) from None
