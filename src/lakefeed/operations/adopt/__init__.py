"""Take a table over from another tool, and hand a feed's position to another tool."""
