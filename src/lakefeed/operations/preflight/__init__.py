"""Checks what a pipeline points at before Spark starts; discovers topics and writes a first pipeline file."""
