"""The Iceberg catalog: a SQLite file with the tables of Iceberg's JDBC catalog, schema version V1."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

# org.apache.iceberg.jdbc.JdbcUtil, V1_CREATE_CATALOG_SQL and CREATE_NAMESPACE_PROPERTIES_TABLE_SQL.
_TABLES = """
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
    """Makes the catalog if it is not there, so that all engines find the same tables in it."""
    with closing(sqlite3.connect(file)) as connection:
        # Readers do not wait for a writer, nor fail: Spark commits while others query.
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(_TABLES)
