"""What invocations share: those in flight, and the memory for bodies."""

from hashlib import sha256

import pytest

from sagehen.gateway.client.limits import InvocationLimits, Limit, no_hits
from sagehen.gateway.invocation.context import ActiveRequests, BodyMemory, RequestBody
from sagehen.gateway.metrics.counters import InFlightCounter
from sagehen.wire.errors import AwsError
from support.clock import HandClock

LIMITS = InvocationLimits(
    invocations=2, seconds=10, stream_seconds=100, body_bytes=1000, stage_bytes=1000
)


class Request:
    def __init__(self, requests: ActiveRequests, deadline: float = 0.0) -> None:
        self.requests = requests
        self.deadline = deadline
        self.start_deadline = 0.0
        self.ended = ""

    def expire(self) -> None:
        self.ended = "expired"
        self.requests.remove(self)

    def shut_down(self) -> None:
        self.ended = "shut down"
        self.requests.remove(self)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def hits() -> dict[Limit, int]:
    return no_hits()


@pytest.fixture
def requests(clock, hits) -> ActiveRequests:
    return ActiveRequests(LIMITS, hits, clock)


def test_so_many_are_taken_and_no_more(requests, hits):
    in_flight = InFlightCounter()
    for _ in range(2):
        requests.check_limit()
        requests.add(Request(requests), in_flight)
    with pytest.raises(AwsError, match="works on 2 invocations already"):
        requests.check_limit()
    assert (len(requests), in_flight.now, hits[Limit.QUEUE]) == (2, 2, 1)


def test_one_is_removed_once(requests):
    in_flight, request = InFlightCounter(), Request(requests)
    requests.add(request, in_flight)
    requests.remove(request)
    requests.remove(request)
    assert (len(requests), in_flight.now) == (0, 0)


def test_who_is_overdue_is_ended_and_nobody_else(requests, clock):
    early, late = Request(requests, 10.0), Request(requests, 11.0)
    for request in (early, late):
        requests.add(request, InFlightCounter())
    clock.seconds = 10.0
    requests.expire()
    assert (early.ended, late.ended) == ("expired", "")


def test_a_stream_has_its_own_time_and_is_cut_off_at_the_end(requests, clock):
    stream, waiting = Request(requests, 10.0), Request(requests, 1000.0)
    for request in (stream, waiting):
        requests.add(request, InFlightCounter())
    clock.seconds = 9.0
    requests.begin_stream(stream)
    requests.begin_stream(stream)
    assert stream.deadline == 109.0
    clock.seconds = 50.0
    requests.expire()
    assert stream.ended == ""
    requests.shut_down()
    assert (stream.ended, waiting.ended, len(requests)) == ("shut down", "", 1)


def test_the_wait_for_a_start_is_bounded_however_often_an_instance_is_lost(requests, clock):
    again, other = Request(requests, 10.0), Request(requests, 10.0)
    for request in (again, other):
        requests.add(request, InFlightCounter())
    requests.begin_start(again)
    clock.seconds = 20.0
    requests.end_start(again)
    requests.begin_start(other)
    clock.seconds = 30.0
    requests.begin_start(again)
    assert (again.deadline, other.deadline) == (180.0, 200.0)
    clock.seconds = 180.0
    requests.expire()
    assert (again.ended, other.ended) == ("expired", "")


def test_the_first_of_several_wakes_the_gateway(requests):
    woken: list[int] = []
    requests.on_first = lambda: woken.append(len(requests))
    first, second = Request(requests), Request(requests)
    requests.add(first, InFlightCounter())
    requests.add(second, InFlightCounter())
    requests.remove(first)
    requests.remove(second)
    requests.add(first, InFlightCounter())
    assert woken == [0, 0]


@pytest.mark.parametrize("parts", [[], [b"one"], [b"one", b"two", b"three"]])
def test_a_body_is_digested_as_it_comes(parts):
    memory = BodyMemory(5)
    body = RequestBody(memory)
    for part in parts:
        body.add(part)
    whole = b"".join(parts)
    assert body.sha256() == sha256(whole).hexdigest()
    assert (body.size, memory.bytes) == (len(whole), len(whole))
    body.drop()
    body.drop()
    assert (memory.bytes, body.parts) == (0, [])


@pytest.mark.parametrize("add", ["add", "add_unhashed"])
def test_small_pieces_are_joined_as_each_takes_more_memory_than_it_counts(add):
    """In chunks of two bytes, a body of 25 MB took 500 MB."""
    body = RequestBody(BodyMemory(100))
    pieces = [b"%02d" % (number % 100) for number in range(50_000)]
    for piece in pieces:
        getattr(body, add)(piece)
    assert len(body.parts) < 30
    assert b"".join(body.parts) == b"".join(pieces)
    assert body.size == 100_000
    if add == "add":
        assert body.sha256() == sha256(b"".join(pieces)).hexdigest()
    body.drop()
    assert body._memory.bytes == 0
