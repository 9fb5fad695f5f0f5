"""The operations on a pipeline other than running it."""
