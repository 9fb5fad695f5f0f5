"""Writes many topics to separate tables in one job."""
