"""From rows to the bytes of records."""
