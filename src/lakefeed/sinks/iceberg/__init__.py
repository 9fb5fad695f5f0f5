"""Iceberg tables: append, upsert, history and aggregates, each batch in one commit."""
