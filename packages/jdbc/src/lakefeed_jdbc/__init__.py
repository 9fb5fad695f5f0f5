"""The sink ``jdbc``: a table of PostgreSQL, MariaDB or MySQL, and a transaction per batch."""

JARS = ("lakefeed_jdbc/lakefeed-jdbc.jar",)
PAGE = "jdbc"
"""The documentation page that errors about this sink link to."""
