"""The sink ``kafka``: rows become records of another topic."""

JARS = ("lakefeed_encode/lakefeed-encode.jar", "lakefeed_kafka/lakefeed-kafka.jar")
PAGE = "kafka-sink"
"""The documentation page that errors of this package link to."""
