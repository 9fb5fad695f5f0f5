"""Create topics, show their records, and profile them."""

PAGE = "topics"
"""The documentation page that errors of this package link to."""
