"""The record of a feed's commits: offset ranges in the sink, fences, and the checkpoint."""
