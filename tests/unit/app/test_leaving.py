"""A server that leaves its cluster before it stops."""

from pathlib import Path
from typing import Any

import pytest

from sagehen.app import leaving
from sagehen.app.leaving import LONGEST_AWAY_SECONDS, SHORTEST_CALL_SECONDS, leave_cluster
from sagehen.base.errors import NotFound, SagehenError, Unavailable
from sagehen.base.home import Home
from support.clock import HandClock

LONG = 60.0


class Server:
    """Answers in turn; the last answer stays."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.answers: list[dict[str, Any] | SagehenError | None] = []
        """None: it hangs"""
        self.asked: list[str] = []
        self.cluster: dict[str, Any] = {"nodes": [], "waiting": []}

    def call(self, url, home, path, method="GET", body=None, timeout_seconds=0.0):
        if path == "cluster":
            return self.cluster
        self.asked.append(f"{method} {url} {path}")
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if answer is None:
            self.clock.seconds += timeout_seconds
            raise Unavailable("timed out")
        if isinstance(answer, SagehenError):
            raise answer
        return answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server(HandClock())
    monkeypatch.setattr(leaving, "call_server", server.call)
    return server


async def leave(server: Server, *answers: dict[str, Any] | SagehenError | None, seconds=LONG):
    """Returns what was reported."""
    server.answers = list(answers)
    reports: list[str] = []
    home = Home(Path("/nowhere"))
    await leave_cluster(home, "http://h:1", "n1", seconds, server.clock, reports.append)
    return reports


def left(instances: int, can_move: bool = True) -> dict[str, Any]:
    return {"instances": instances, "can_move": can_move}


async def test_it_waits_until_all_instances_have_moved(server: Server) -> None:
    assert await leave(server, left(2), left(1), left(0)) == [
        "Moving 2 instances to other nodes first ..."
    ]
    assert server.asked == ["PUT http://h:1 cluster/nodes/n1/leave"] * 3


async def test_a_control_that_hangs_is_not_waited_for_longer_than_one_that_is_gone(
    server: Server,
) -> None:
    (report,) = await leave(server, None)
    assert "No control answers" in report
    assert server.clock.seconds <= LONGEST_AWAY_SECONDS + SHORTEST_CALL_SECONDS


async def test_a_control_that_hangs_does_not_lengthen_the_wait(server: Server) -> None:
    await leave(server, left(2), None, seconds=3.0)
    assert server.clock.seconds <= 3 + 2 * SHORTEST_CALL_SECONDS


async def test_another_control_may_take_over(server: Server) -> None:
    away = Unavailable("nobody leads")
    assert await leave(server, left(1), away, away, left(1), left(0)) == [
        "Moving 1 instances to other nodes first ..."
    ]


async def test_what_takes_too_long_is_said(server: Server) -> None:
    *_, report = await leave(server, left(1), seconds=5.0)
    assert "After 5 s (cluster_leave_seconds), not all instances have moved" in report
    assert 5 <= server.clock.seconds <= 6


@pytest.mark.parametrize("answer", [left(0), left(3, can_move=False)])
async def test_it_stops_at_once_where_nothing_moves(server: Server, answer) -> None:
    assert await leave(server, answer) == []
    assert len(server.asked) == 1


async def test_a_refusal_is_said(server: Server) -> None:
    assert await leave(server, NotFound("no such node")) == [
        "Nothing moves to other nodes: no such node"
    ]


async def test_without_time_nobody_is_asked(server: Server) -> None:
    assert await leave(server, left(1), seconds=0) == []
    assert server.asked == []


@pytest.mark.parametrize(
    ("stuck", "may_grow", "waits"), [(2, False, False), (1, False, True), (2, True, True)]
)
async def test_it_waits_only_for_what_can_move(
    server: Server, stuck: int, may_grow: bool, waits: bool
) -> None:
    """Ray's autoscaler may add a node for what has no room."""
    nodes = [{"id": "n1", "without_room": stuck}, {"id": "n2", "without_room": 0}]
    waiting = [{"id": "i", "reason": "it needs 2 vCPUs"}]
    server.cluster = {"nodes": nodes, "waiting": waiting, "may_grow": may_grow}
    *_, report = await leave(server, left(2), seconds=30.0)
    assert ("After 30 s" in report) == waits
    assert (report == NO_ROOM) != waits
    assert (server.clock.seconds < 3) != waits


NO_ROOM = "No other node has room for 2 instances, which end with this server: it needs 2 vCPUs."
