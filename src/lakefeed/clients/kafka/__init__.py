"""Kafka without Spark: topics, offsets, consumer groups, client settings."""
