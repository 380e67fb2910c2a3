"""Fixtures of these tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sagehen.frame.arns import ArnMaker
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.sqs.arrivals import Arrivals
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit
from sagehen.wire.errors import AwsError
from support.clock import HandClock
from support.state import settings_of


@pytest.fixture
def call(database: Database, tmp_path: Path) -> Iterator[RequestContext]:
    """The context of operations at second 1000; mail can be sent."""
    writes = GroupCommit(database)
    settings = settings_of(tmp_path)
    yield RequestContext(
        settings=settings.model_copy(update={"smtp_host": "mail.test"}),
        database=database,
        writes=writes,
        objects=None,  # type: ignore[arg-type]
        clock=HandClock(1000),
        arns=ArnMaker("000000000000", "us-east-1"),
        request_id="r",
        hint=lambda: None,
        seal=lambda envelope: envelope.message,
        arrivals=Arrivals(10),
    )
    writes.close()


@pytest.fixture
def code_of() -> Callable[[Callable[[], object]], str]:
    """`code_of(act)`: the code of the error that `act()` raises."""

    def code(act: Callable[[], object]) -> str:
        with pytest.raises(AwsError) as caught:
            act()
        return caught.value.code

    return code
