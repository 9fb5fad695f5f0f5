"""The source ``kinesis``: a feed reads a Kinesis stream, and its commits have the sequence numbers."""

PAGE = "sources"
"""The documentation page that errors about this source link to."""
