"""What a user does with a pipeline beside running it."""
