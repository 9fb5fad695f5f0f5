"""Reports the runs of a feed as OpenLineage events."""

PAGE = "runs"
"""The page that errors of this package name."""
