"""Proves from the table and the broker that the table has each record exactly once."""
