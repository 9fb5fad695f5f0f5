"""Sources of records: Kafka, Kinesis, and sources whose rows come decoded."""
