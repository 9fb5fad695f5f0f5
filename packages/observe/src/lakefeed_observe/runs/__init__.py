"""The traces of runs: the driver stores a JSON file per run, and commands show it as text or as a page."""

PAGE = "operate"
"""The documentation page that errors of this package link to."""
