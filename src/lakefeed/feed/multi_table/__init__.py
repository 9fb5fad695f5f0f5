"""Writes many topics in one job, each to a table of its own."""
