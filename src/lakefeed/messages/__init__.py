"""Text for people: with escapes and alignment, without secrets and without values of records."""
