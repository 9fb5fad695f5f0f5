"""The sink ``delta``: a Delta table whose log also has the feed's ledger."""

JARS = ("lakefeed_delta/lakefeed-delta.jar",)
PAGE = "delta"
"""The documentation page that errors of this package link to."""
