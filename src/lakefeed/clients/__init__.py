"""The clients of the systems that lakefeed uses: Spark, Kafka, registries, catalogs, stores and databases."""
