"""A feed's rows as documents of Elasticsearch or OpenSearch."""
