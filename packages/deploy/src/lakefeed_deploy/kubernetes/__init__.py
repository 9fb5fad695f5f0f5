"""Kubernetes objects of a feed: one model of the application, and one renderer per operator."""
