"""Moves a feed on purpose: plans, executes and remembers it."""
