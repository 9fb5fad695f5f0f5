"""Indexes of Elasticsearch or OpenSearch, with a ledger beside them."""
