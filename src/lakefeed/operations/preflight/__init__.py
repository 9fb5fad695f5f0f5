"""Checks a pipeline's servers, tables and SQL before a run."""
