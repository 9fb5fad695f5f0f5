"""The progress of a running feed: as numbers, and as lines in a terminal."""
