"""A running feed in a terminal or a log: a live panel, a line for each batch, or structured lines."""
