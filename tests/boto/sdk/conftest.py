"""The SageMaker SDK as its users have it."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from support.server import Server


@pytest.fixture(scope="module")
def sdk(aws: Server) -> Iterator[Any]:
    """The SDK in the environment of its users, but that it tells nobody that it is used."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [one for one in os.environ if one.startswith(("AWS_", "SAGEMAKER_"))]:
            patch.delenv(name)
        for name, value in aws.env.items():
            patch.setenv(name, value)
        import sagemaker

        patch.setattr(
            "sagemaker.telemetry.telemetry_logging._send_telemetry_request", lambda *_, **__: None
        )
        yield sagemaker
