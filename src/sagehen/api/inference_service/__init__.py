"""The Async-Inference-Service: jobs of hours behind a tiny HTTP API."""
