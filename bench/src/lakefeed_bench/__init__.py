"""Measurements against real servers that can be repeated: the command ``lakefeed-bench``."""
