"""Values that are lines of CSV, read by a class of Java."""

PAGE = "decode"
"""The page of the documentation that errors about this format name."""
