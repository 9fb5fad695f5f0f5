"""What a running query shows: progress as numbers, and as a line in a terminal."""
