"""Runs the instances of one node: launchers, artifacts, the model cache."""
