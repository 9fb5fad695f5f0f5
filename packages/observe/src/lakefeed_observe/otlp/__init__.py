"""Send a feed's metrics to a collector by OTLP."""

PAGE = "metrics"
"""The page that errors of this package name."""
