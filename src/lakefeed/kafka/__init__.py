"""All that talks Kafka: source, topics, client settings."""
