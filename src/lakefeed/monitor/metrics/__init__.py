"""Metrics of running feeds: their table, and the code that exports them from the driver."""
