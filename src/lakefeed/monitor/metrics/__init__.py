"""Metrics of running feeds: one table, and the ways in which it leaves the driver."""
