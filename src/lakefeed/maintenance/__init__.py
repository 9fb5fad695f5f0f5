"""Maintenance of Iceberg tables: what is due, and how it is done beside a writer."""
