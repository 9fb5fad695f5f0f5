"""The sinks of rows; each declares its guarantee."""
