"""The operations on a feed except its run."""
