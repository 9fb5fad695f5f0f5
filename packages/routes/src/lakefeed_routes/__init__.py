"""The sink with a table for each value of a field: ``sink.iceberg.table: lake.shop.{event_type}``."""

PAGE = "many-topics"
"""The documentation page that errors about this sink link to."""
