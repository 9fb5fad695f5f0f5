"""Report the runs of a feed as OpenLineage events."""

PAGE = "operate"
"""The documentation page that errors of this package link to."""
