"""Checks what a pipeline refers to before Spark starts; discovers topics and writes a first pipeline file."""
