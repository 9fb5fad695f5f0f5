"""The format ``decode.csv``: every value is a line of CSV."""

JARS = ("lakefeed_csv/lakefeed-csv.jar",)
PAGE = "decode"
"""The documentation page that errors about this format link to."""
