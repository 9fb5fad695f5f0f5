"""Start real servers for tests, beside the local stack."""
