"""The operations on a pipeline beside running it."""
