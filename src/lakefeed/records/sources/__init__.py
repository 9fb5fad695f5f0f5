"""Sources of records: Kafka, sources from other packages, and sources with decoded rows."""
