"""Send a feed's metrics to a collector by OTLP."""

PAGE = "metrics"
"""The documentation page that errors of this package link to."""
