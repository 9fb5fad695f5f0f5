"""Offset ranges and sets of offsets; imports nothing else."""
