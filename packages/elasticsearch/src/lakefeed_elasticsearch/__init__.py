"""Indexes of Elasticsearch or OpenSearch, with a ledger beside them."""

PAGE = "elasticsearch"
"""The documentation page that errors about this sink link to."""
