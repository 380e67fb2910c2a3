"""The SageMaker SDK as its users have it."""

import os
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from support.sagemaker_sdk import check_schema_once
from support.server import Server


@pytest.fixture(scope="module")
def sdk(aws: Server) -> Iterator[Any]:
    """The SDK in the environment of its users, as `sagehen env` makes it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [one for one in os.environ if one.startswith(("AWS_", "SAGEMAKER_"))]:
            patch.delenv(name)
        for name, value in aws.user_env.items():
            patch.setenv(name, value)
        # The one that other tests' clients are of has read what was set then.
        patch.setattr(boto3, "DEFAULT_SESSION", None)
        import sagemaker

        check_schema_once()
        reports: list[Any] = []
        patch.setattr(
            "sagemaker.telemetry.telemetry_logging._send_telemetry_request",
            lambda *report, **_: reports.append(report),
        )
        yield sagemaker
        assert reports == []  # which it would send to AWS
