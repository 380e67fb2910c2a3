"""A Docker Engine of the tests' own, and images without a registry."""
