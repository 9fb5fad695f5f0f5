"""Rows into topics: files or generated rows, encoded and sent by Spark."""
