"""Encode rows as records: Avro, Protobuf, JSON; a library that plug-ins share."""

PAGE = "topics"
"""The documentation page that errors of this package link to."""
