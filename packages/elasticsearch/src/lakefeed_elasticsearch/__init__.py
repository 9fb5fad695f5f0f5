"""Indexes of Elasticsearch or OpenSearch, with a ledger beside them."""

PAGE = "elasticsearch"
"""The page of the documentation that errors about this sink name."""
