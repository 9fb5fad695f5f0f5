"""Repeatable measurements against real servers: the command ``lakefeed-bench``."""
