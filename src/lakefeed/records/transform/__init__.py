"""Transforms decoded rows into the sink's rows."""
