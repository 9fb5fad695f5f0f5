"""The traces of runs: what each did, kept after its end as JSON, and shown as a page."""

PAGE = "runs"
"""The page that errors of this package name."""
