"""A container's log: written as the agent does, read as a client of CloudWatch Logs does."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sagehen.agent.instances.container_log import ContainerLog
from sagehen.frame.context import RequestContext
from sagehen.services.monitoring.logs.operations import OPERATIONS
from support.clock import HandClock

GROUP = "/aws/sagemaker/Endpoints/demo"


STREAM = "AllTraffic/i-1"


START = 1_700_000_000.0
"""Long ago: files are written later, so that none of them looks settled unless a test says so."""


class Logs:
    """`logs.print(b"…")` as a container would; `logs.get(…)` as a client would."""

    def __init__(self, home: Path, call: RequestContext, clock: HandClock, most_bytes: int) -> None:
        self.path = home / "logs" / "endpoints" / "demo" / "AllTraffic" / "i-1" / "primary.log"
        self.clock = clock
        self.call = call
        self.most_bytes = most_bytes
        self.log = ContainerLog(self.path, most_bytes, clock.now)

    def restart(self) -> None:
        self.close()
        self.log = ContainerLog(self.path, self.most_bytes, self.clock.now)

    def close(self) -> None:
        self.log._close()

    def print(self, data: bytes, after: float = 0.0) -> None:
        self.clock.seconds += after
        self.log._write(data)

    def get(self, **params: Any) -> dict[str, Any]:
        given = {"logGroupName": GROUP, "logStreamName": STREAM, **params}
        return OPERATIONS["GetLogEvents"](self.call, given)

    def filter(self, **params: Any) -> dict[str, Any]:
        return OPERATIONS["FilterLogEvents"](self.call, {"logGroupName": GROUP, **params})

    def texts(self, **params: Any) -> list[str]:
        return [one["message"] for one in self.get(**params)["events"]]


@pytest.fixture
def make_logs(server: Any, tmp_path: Path) -> Iterator[Callable[..., Logs]]:
    server.clock.seconds = START
    made: list[Logs] = []

    def make(most_bytes: int = 10**6) -> Logs:
        made.append(Logs(tmp_path, server.call(), server.clock, most_bytes))
        return made[-1]

    yield make
    for logs in made:
        logs.close()


@pytest.fixture
def logs(make_logs: Callable[..., Logs]) -> Logs:
    return make_logs()
