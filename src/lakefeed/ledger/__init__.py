"""The record of what is committed: offset ranges in the sink, fences, and the checkpoint that belongs to them."""
