"""Streams of Kinesis, shard by shard: each commit has the sequence numbers of its records."""

PAGE = "sources"
"""The page of the documentation that errors about this source name."""
