"""Many topics in one job, each in a table of its own: which settings it has, which offsets are next, and the rounds."""
