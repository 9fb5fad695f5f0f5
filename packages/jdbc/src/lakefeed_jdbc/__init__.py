"""Tables of PostgreSQL, MariaDB or MySQL: one transaction a batch, with its offset ranges."""

PAGE = "jdbc"
"""The page of the documentation that errors about this sink name."""
