"""Loads a pipeline file: YAML with line numbers, overrides, variables, and every mistake at once."""
