"""Plans a run: where it would start, what it would change, read and cost."""
