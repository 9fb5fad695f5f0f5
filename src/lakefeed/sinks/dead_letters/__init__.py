"""Records that cannot become rows: the tables and topics that keep them."""
