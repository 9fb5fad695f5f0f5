"""The format ``decode.csv``: every value is a line of CSV."""

PAGE = "decode"
"""The documentation page that errors about this format link to."""
