"""Proves that a table holds each record once, from the table and the broker."""
