"""Moves a feed on purpose: plans the move and executes it."""
