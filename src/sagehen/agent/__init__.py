"""Runs the instances and training jobs of one node."""
