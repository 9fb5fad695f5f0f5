"""Build the references from the current code, because tests of the documentation read them."""

from tools import references

references.build()
