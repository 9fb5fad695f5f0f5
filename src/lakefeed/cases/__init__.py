"""Runs the cases of a pipeline file through its feed, without brokers, registry and store."""
