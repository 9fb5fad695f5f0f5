"""Measurements against real servers that can be repeated: ``lakefeed bench``."""
