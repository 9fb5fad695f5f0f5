"""Reports the runs of a feed as OpenLineage events."""
