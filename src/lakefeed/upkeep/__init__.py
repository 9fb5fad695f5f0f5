"""Upkeep of Iceberg tables beside the feed that writes them: what is due, and how it is done without harm."""
