"""Schema evolution: what a new writer's schema means for the reader's schema and for the table."""
