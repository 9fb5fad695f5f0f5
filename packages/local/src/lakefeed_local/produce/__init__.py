"""Rows into topics: from files, or generated."""

PAGE = "topics"
