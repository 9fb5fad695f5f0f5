"""The progress of a running feed as one model: stored in the driver, shown in a terminal and by a local endpoint."""
