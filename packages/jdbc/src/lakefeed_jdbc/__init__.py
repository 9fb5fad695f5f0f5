"""Tables of PostgreSQL, MariaDB or MySQL: one transaction per batch, which also has its offset ranges."""

PAGE = "jdbc"
"""The documentation page that errors about this sink link to."""
