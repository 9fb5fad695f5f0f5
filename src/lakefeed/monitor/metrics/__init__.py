"""Metrics of running feeds: their table, and the ways to export them from the driver."""
