"""The source ``kinesis``: a feed reads a Kinesis stream, and its commits contain the stream's sequence numbers."""

PAGE = "sources"
"""The documentation page that errors about this source link to."""
