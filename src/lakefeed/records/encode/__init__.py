"""Turns rows into the bytes of records."""
