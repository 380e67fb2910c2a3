"""What the tests of SNS have: a topic each, and paths of one web server."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from support.receiver import Receiver
from support.server import Server


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def sns(server: Server) -> Any:
    return server.client("sns")


@pytest.fixture
def topic(sns: Any) -> Iterator[str]:
    arn = sns.create_topic(Name=f"t-{uuid.uuid4().hex[:8]}")["TopicArn"]
    yield arn
    sns.delete_topic(TopicArn=arn)


@pytest.fixture
def path() -> str:
    return f"/{uuid.uuid4().hex[:8]}"
