"""Iceberg tables outside of feeds: catalogs, tables read by pyiceberg, SQL texts, and conflicts between writers."""
