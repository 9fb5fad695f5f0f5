"""Checks a pipeline's servers, tables and SQL before a run; writes a first pipeline file for a topic."""
