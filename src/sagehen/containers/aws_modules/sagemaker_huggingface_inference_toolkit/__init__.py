"""Stands in for AWS's sagemaker-huggingface-inference-toolkit where that is not installed."""
