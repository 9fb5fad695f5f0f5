"""Reports the runs of a feed as OpenLineage events."""

PAGE = "lineage"
"""The page that errors of this package name."""
