"""Where rows go: each sink says what it guarantees."""
