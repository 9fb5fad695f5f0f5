"""The traces of runs, stored as JSON after the runs' ends, and shown as pages."""

PAGE = "runs"
"""The documentation page that errors of this package link to."""
