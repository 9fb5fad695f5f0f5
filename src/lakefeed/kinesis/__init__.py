"""Kinesis as a source of numbered records."""
