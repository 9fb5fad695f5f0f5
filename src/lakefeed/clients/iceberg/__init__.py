"""Iceberg tables without a feed: open one, write SQL for it, resolve write conflicts."""
