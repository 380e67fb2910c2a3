"""Runs a user's script in a training job's container, as AWS's toolkit does."""
