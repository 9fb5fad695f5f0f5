"""Build the references from the current code, because the tests of the documentation also read references."""

from tools import references

references.build()
