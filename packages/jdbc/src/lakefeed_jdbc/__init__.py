"""The sink ``jdbc``: a table of PostgreSQL, MariaDB or MySQL, and a transaction per batch."""

PAGE = "jdbc"
"""The documentation page that errors about this sink link to."""
