"""The source ``kinesis``: a feed reads a Kinesis stream, and its commits contain the stream's sequence numbers."""

JARS = ("lakefeed_kinesis/lakefeed-kinesis.jar",)
PAGE = "sources"
"""The documentation page that errors about this source link to."""
