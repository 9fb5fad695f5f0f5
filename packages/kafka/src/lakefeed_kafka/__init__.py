"""The sink ``kafka``: rows become records of another topic."""

PAGE = "kafka-sink"
"""The documentation page that errors of this package link to."""
