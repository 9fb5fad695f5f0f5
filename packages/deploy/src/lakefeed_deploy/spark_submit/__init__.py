"""Brings a pipeline with all that its driver needs to a cluster."""
