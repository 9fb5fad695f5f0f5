"""Texts for users: readable, and without secrets, control characters and values of records."""
