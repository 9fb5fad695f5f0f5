"""Rows in a PostgreSQL, MariaDB or MySQL database: one transaction for each batch, with its offset ranges."""
