"""What a user declares: the models of ``pipeline.yaml`` and of connections, and how they are loaded."""
