"""Stands in for AWS's sagemaker-inference where that is not installed."""
