"""Produce rows into topics: from files, or generated ones."""

PAGE = "topics"
