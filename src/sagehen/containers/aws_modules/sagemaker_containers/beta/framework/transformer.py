"""Imported by AWS's examples, which call nothing of it."""

from typing import NoReturn


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(
        f"sagemaker_containers.beta.framework.transformer.{name} is in AWS's image only. Name "
        "sagemaker-containers in requirements.txt to have the whole package."
    )


__all__: list[str] = []
