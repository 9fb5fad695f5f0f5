"""Topics: create them, look into them, and profile their records."""

PAGE = "topics"
"""The page of the documentation that errors of this package name."""
