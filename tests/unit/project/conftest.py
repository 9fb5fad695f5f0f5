"""Tests of the pages read the references too, built from the code as it is now."""

from tools import references

references.build()
