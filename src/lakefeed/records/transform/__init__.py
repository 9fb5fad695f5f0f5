"""Transforms of rows, between decoding and the sink."""
