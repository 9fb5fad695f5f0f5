"""Build the references from the present code: tests of the pages read them, too."""

from tools import references

references.build()
