"""Stores records that cannot become rows, in tables or topics."""
