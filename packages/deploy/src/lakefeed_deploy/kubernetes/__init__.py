"""Kubernetes objects of a feed: one model of the application, and a renderer for each operator."""
