"""Real servers that tests start beside the local stack."""
