"""The sink ``elasticsearch``: an index of Elasticsearch or OpenSearch, with a ledger in another index."""

JARS = ("lakefeed_elasticsearch/lakefeed-elasticsearch.jar",)
PAGE = "elasticsearch"
"""The documentation page that errors about this sink link to."""
