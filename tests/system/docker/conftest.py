"""One Docker Engine of the tests' own: their files stay on one worker."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.deploy import Deployer
from support.docker.endpoints import CAPABILITY, ImageEndpoints
from support.docker.engine import running_engine
from support.docker.images import derive_image, import_image


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    with running_engine() as client:
        import_image(client, "plain:1")
        for name, change in (
            ("mine:1", f"LABEL {CAPABILITY}.accept-bind-to-port=true"),
            ("many:1", f"LABEL {CAPABILITY}.multi-models=true"),
            ("bare:1", "ENV PATH=/usr/bin"),
            ("user:1", "USER 1234:1234"),
        ):
            derive_image(client, name, "plain:1", change)
        yield client


@pytest.fixture(scope="module")
def images(deploy: Deployer) -> ImageEndpoints:
    return ImageEndpoints(deploy)
