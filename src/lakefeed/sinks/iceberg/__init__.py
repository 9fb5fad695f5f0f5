"""Iceberg tables: append, upsert, history and aggregates; a batch is one commit."""
