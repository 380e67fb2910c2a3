"""One server with two gateways: its endpoints are called without a pause while processes die."""

from collections.abc import Iterator

import pytest

from support.deploy import Deployer
from support.server import server_maker


@pytest.fixture(scope="session")
def two_gateways() -> Iterator[Deployer]:
    with server_maker() as make:
        yield Deployer(make(gateways="2"))
