"""The sink ``elasticsearch``: an index of Elasticsearch or OpenSearch, with a ledger in another index."""

PAGE = "elasticsearch"
"""The documentation page that errors about this sink link to."""
