"""Proves from the table and the broker that a table has every record once."""
