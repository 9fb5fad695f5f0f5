"""Offset ranges of batches, and sets of offsets."""
