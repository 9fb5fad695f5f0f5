"""Decode values that are lines of CSV, with a Java class."""

PAGE = "decode"
"""The documentation page that errors about this format link to."""
