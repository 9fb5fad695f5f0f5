"""Talks to what lakefeed runs on: Spark, Kafka, registries, catalogs, stores and databases."""
