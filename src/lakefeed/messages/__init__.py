"""Text for people: escaped, aligned, and without secrets or the values of records."""
