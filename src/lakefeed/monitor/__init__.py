"""The progress of a running feed as one model, and its views: terminal, metrics, the driver's endpoint."""
