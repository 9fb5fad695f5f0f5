"""Shows a running feed in a terminal or a log: a live panel, a line per batch, or structured lines."""
