"""What several files of a client's tests have."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from support.events import PATTERN, remove
from support.receiver import Receiver
from support.server import Server


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A web server that answers as it is told to."""
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def events(aws: Server) -> Any:
    return aws.client("events")


@pytest.fixture(scope="module")
def sqs(aws: Server) -> Any:
    return aws.client("sqs")


@pytest.fixture
def source() -> str:
    """Of this test's events only: other tests' rules do not match them."""
    return f"my.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def rule(events: Any, source: str) -> Iterator[str]:
    """The name of a rule for this test's events."""
    name = f"rule-{source}"
    events.put_rule(Name=name, EventPattern=json.dumps({**PATTERN, "source": [source]}))
    yield name
    remove(events, name)
