"""Turns bytes into rows, and rows into bytes: sources, decoders, schemas, transforms, encoders."""
