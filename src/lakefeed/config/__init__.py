"""The models of ``pipeline.yaml`` and of connections, and how they are loaded."""
