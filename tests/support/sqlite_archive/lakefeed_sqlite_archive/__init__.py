"""A sink for lakefeed: rows as JSON in a SQLite database."""
