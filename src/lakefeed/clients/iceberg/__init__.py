"""Iceberg tables outside of feeds: opens tables, writes SQL for them, resolves write conflicts."""
