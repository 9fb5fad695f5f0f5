"""Progress as a fact in the sink: offset ranges, the ledger of commits, the checkpoint's identity."""
