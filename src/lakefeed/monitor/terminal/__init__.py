"""Shows a running feed in a terminal or a log."""
