"""What client connections share: how many there may be, and the ids of requests."""

import random
from typing import Any

import pytest

from sagehen.gateway.client.limits import RESERVE, ClientLimits, Limit, no_hits
from sagehen.gateway.gateway import MIN_IDLE_SECONDS, GatewayServer
from support.clock import HandClock

LIMITS = ClientLimits(
    connections=2,
    head_bytes=1000,
    head_seconds=10,
    stall_seconds=30,
    answer_seconds=900,
    idle_seconds=100,
)


class Connection:
    """As the server uses one."""

    def __init__(self) -> None:
        self.health_only = False
        self.is_answering = False
        self.is_sending = False
        self.ended = ""

    def evict(self) -> None:
        self.ended = "evicted"

    def turn_away(self) -> None:
        self.ended = "turned away"


class World:
    def __init__(self) -> None:
        self.clock = HandClock(1000.0)
        self.hits = no_hits()
        unused: Any = None
        self.server = GatewayServer(unused, self.clock, random.Random(1), LIMITS, self.hits)

    def connect(self, idle: bool = False) -> Any:
        connection: Any = Connection()
        if not self.server.admit(connection):
            connection.ended = "refused"
        elif idle:
            self.server.went_idle(connection)
        return connection


@pytest.fixture
def world() -> World:
    return World()


def test_the_longest_idle_one_makes_room(world):
    first, second = world.connect(idle=True), world.connect(idle=True)
    world.clock.seconds += MIN_IDLE_SECONDS
    third = world.connect()
    assert (first.ended, second.ended, third.ended) == ("evicted", "", "")
    assert (third.health_only, world.hits[Limit.EVICTED]) == (False, 1)


def test_a_client_that_may_be_about_to_send_is_not_closed(world):
    first = world.connect(idle=True)
    world.connect(idle=True)
    world.clock.seconds += MIN_IDLE_SECONDS / 2
    assert world.connect().health_only
    assert first.ended == ""


@pytest.mark.parametrize(("seconds", "ended"), [(5, ""), (30, "evicted")])
def test_a_client_that_still_reads_has_its_time(world, seconds, ended):
    first = world.connect(idle=True)
    first.is_sending = True
    world.connect()
    world.clock.seconds += seconds
    world.connect()
    assert first.ended == ended


def test_without_an_idle_one_a_few_are_taken_for_health_checks(world):
    for _ in range(2):
        world.connect()
    reserve = [world.connect() for _ in range(RESERVE)]
    assert all(connection.health_only for connection in reserve)
    reserve[0].is_answering = True
    assert world.connect().ended == ""
    assert [connection.ended for connection in reserve[:3]] == ["", "turned away", ""]
    for connection in reserve:
        connection.is_answering = True
    world.server.lost(reserve[2])
    assert world.connect().ended == ""
    assert world.hits[Limit.CONNECTIONS] == RESERVE + 2


def test_all_of_the_reserve_may_be_in_use(world):
    for _ in range(2 + RESERVE):
        world.connect().is_answering = True
    assert world.connect().ended == "refused"


def test_each_request_has_an_id_of_its_own(world):
    ids = [world.server.next_request_id().decode() for _ in range(3)]
    assert len(set(ids)) == 3
    assert {len(each) for each in ids} == {36}
    assert {each[14] + each[19] for each in ids} == {"4a"}, "the form of a UUID"
