"""Stands in for AWS's sagemaker-containers where that is not installed."""

from . import (
    content_types,
    encoders,
    env,
    errors,
    modules,
    transformer,
    worker,
)
from .env import training_env

__all__ = [
    "content_types",
    "encoders",
    "env",
    "errors",
    "modules",
    "training_env",
    "transformer",
    "worker",
]
