"""Where records come from: Kafka, Kinesis, and sources whose rows come decoded."""
