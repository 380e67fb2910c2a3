"""Training jobs: what is wanted of them, step by step."""
