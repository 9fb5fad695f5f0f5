"""Brings a pipeline with all that its driver needs to a cluster."""

PAGE = "deploy-with-spark-submit"
