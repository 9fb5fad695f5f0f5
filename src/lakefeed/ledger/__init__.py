"""A feed's ledger: the offset ranges of its commits in the sink, its fences, and its checkpoint."""
