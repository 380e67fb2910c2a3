"""Stands in for the SageMaker SDK, for scripts that its ModelBuilder has generated."""

from typing import NoReturn


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(
        f"sagemaker.{name} is in the SageMaker SDK only. Name sagemaker in requirements.txt."
    )
