"""How long a poll of a queue waits."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sagehen.base.clock import SystemClock
from sagehen.frame.arns import ArnMaker
from sagehen.frame.context import RequestContext
from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.services.messaging.sqs import receiving
from sagehen.services.messaging.sqs.arrivals import Arrivals
from sagehen.services.messaging.sqs.records import QueueRecord
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit
from support.state import settings_of


class SetBack(SystemClock):
    """A clock that is set back by five hours as soon as it was looked at a few times."""

    def __init__(self) -> None:
        self._looks = 0

    def now(self) -> float:
        self._looks += 1
        return time.time() - (5 * 3600 if self._looks > 2 else 0)


@pytest.fixture
def writes(database: Database) -> Iterator[GroupCommit]:
    with database.write() as connection:
        queues.insert(
            connection,
            QueueRecord(name="q", queue_id="q", created_at=0, modified_at=0, attributes={}),
        )
    grouped = GroupCommit(database)
    yield grouped
    grouped.close()


async def test_a_poll_ends_in_time_although_the_clock_is_set_back(
    database: Database, writes: GroupCommit, tmp_path: Any
) -> None:
    call = RequestContext(
        settings=settings_of(tmp_path),
        database=database,
        writes=writes,
        objects=None,
        clock=SetBack(),
        arns=ArnMaker("000000000000", "us-east-1"),
        request_id="r",
        hint=lambda: None,
        seal=lambda _: "",
        arrivals=Arrivals(10),
    )
    url = "http://127.0.0.1:9000/000000000000/q"
    async with asyncio.timeout(120):
        answer = await receiving.receive_message(call, {"QueueUrl": url, "WaitTimeSeconds": 1})
    assert answer == {}
