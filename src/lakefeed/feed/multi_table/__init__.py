"""Many topics in one job, each with a table of its own."""
