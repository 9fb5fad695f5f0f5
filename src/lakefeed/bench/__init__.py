"""Measurements against real servers that anybody can repeat: ``lakefeed bench``."""
