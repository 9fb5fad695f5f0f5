"""Runs a feed: opens it, writes its batches, resumes it, and shows its progress."""
