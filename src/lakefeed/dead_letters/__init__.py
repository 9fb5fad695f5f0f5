"""Records that could not become rows: where they are kept, and the way back."""
