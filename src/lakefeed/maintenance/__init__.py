"""Maintenance of Iceberg tables: finds what is due, and does it while writers run."""
