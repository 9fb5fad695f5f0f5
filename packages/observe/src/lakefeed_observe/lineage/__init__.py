"""Report the runs of a feed as OpenLineage events."""

PAGE = "runs"
"""The documentation page that errors of this package link to."""
