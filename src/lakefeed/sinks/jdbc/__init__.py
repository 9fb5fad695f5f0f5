"""Tables of PostgreSQL, MariaDB or MySQL: one transaction a batch, with its offset ranges."""
