"""Kinesis streams, shard by shard: every commit has the sequence numbers of its records."""

PAGE = "sources"
"""The documentation page that errors about this source link to."""
