"""Sources of records: Kafka, sources of other packages, and sources whose rows come decoded."""
