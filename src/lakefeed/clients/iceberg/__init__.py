"""Iceberg tables outside of feeds: open tables, write SQL for tables, resolve write conflicts."""
