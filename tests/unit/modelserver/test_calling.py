import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sagehen.modelserver.calling import Caller
from sagehen.modelserver.contract import Answer, Refusal, Request
from sagehen.modelserver.streaming import Stream


class Gate:
    """A model whose calls wait until they are let through."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def call(self, request: Request) -> Answer:
        self.open.wait(10)
        if request.body == b"exit":
            sys.exit(3)
        if request.body == b"refuse":
            raise Refusal(415, "not this")
        if request.body == b"memory":
            raise MemoryError
        return Answer(200, request.body)

    def close(self) -> None: ...


def requests(*bodies: bytes) -> list[Request]:
    return [Request("POST", "/", {}, body, lambda _: None) for body in bodies]


@pytest.fixture
def executor():
    with ThreadPoolExecutor(2) as pool:
        yield pool


async def test_some_work_some_wait_and_the_rest_is_refused(executor):
    gate = Gate()
    caller = Caller(gate, executor, workers=2, max_waiting=1)
    asked = requests(b"a", b"b", b"c", b"d")
    for request in asked:
        caller.submit(request)
    assert [request.answer and request.answer.status for request in asked] == [
        None,
        None,
        None,
        503,
    ]
    gate.open.set()
    await caller.drained()
    assert [request.answer and request.answer.body for request in asked[:3]] == [b"a", b"b", b"c"]


async def test_whatever_the_code_raises_becomes_an_answer(executor):
    gate = Gate()
    gate.open.set()
    caller = Caller(gate, executor, workers=1, max_waiting=9)
    asked = requests(b"exit", b"refuse", b"memory", b"fine")
    for request in asked:
        caller.submit(request)
    await caller.drained()
    assert [request.answer and request.answer.status for request in asked] == [500, 415, 507, 200]


async def test_a_call_that_takes_too_long_is_answered_without_it(executor):
    gate = Gate()
    caller = Caller(gate, executor, workers=1, max_waiting=9, timeout_seconds=0.001)
    given_up = asyncio.Event()
    request = Request("POST", "/", {}, b"a", lambda _: given_up.set())
    caller.submit(request)
    await given_up.wait()
    assert request.answer
    assert request.answer.status == 500
    assert b"did not answer within 0.001 seconds" in request.answer.body
    assert caller.stuck
    gate.open.set()
    await caller.drained()
    assert not caller.stuck


async def test_an_abandoned_request_is_not_begun(executor):
    gate = Gate()
    caller = Caller(gate, executor, workers=1, max_waiting=9)
    first, gone, last = requests(b"a", b"exit", b"c")
    for request in (first, gone, last):
        caller.submit(request)
    gone.abandoned = True
    gate.open.set()
    await caller.drained()
    assert gone.answer == Answer(499, close=True)
    assert last.answer == Answer(200, b"c")


class Streamer:
    """A model whose answers begin at once, and go on when it is let."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.first = threading.Event()
        self.first.set()

    def call(self, request: Request) -> Answer:
        self.first.wait(10)
        return Answer(200, stream=Stream(b"first", self.rest()))

    def rest(self):
        self.open.wait(10)
        yield b"second"

    def close(self) -> None: ...


async def test_a_stream_may_take_longer_than_a_call(executor):
    model = Streamer()
    caller = Caller(model, executor, workers=1, max_waiting=9, timeout_seconds=0.05)
    begun = asyncio.Event()
    request = Request("POST", "/", {}, b"", lambda _: begun.set())
    caller.submit(request)
    await begun.wait()
    await asyncio.sleep(0.1)
    assert not caller.stuck
    model.open.set()
    await caller.drained()
    assert request.answer
    stream = request.answer.stream
    assert stream
    assert [stream.take(), stream.take(), stream.take()] == [b"first", b"second", None]
    assert stream.over
    assert stream.whole


async def test_a_stream_that_does_not_stop_when_abandoned_is_stuck(executor):
    model = Streamer()
    caller = Caller(model, executor, workers=1, max_waiting=9, timeout_seconds=0.2)
    begun = asyncio.Event()
    request = Request("POST", "/", {}, b"", lambda _: begun.set())
    caller.submit(request)
    await begun.wait()
    assert request.answer
    stream = request.answer.stream
    assert stream
    while stream.take() is None:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    stream.abandon()
    stream.abandon()
    while not caller.stuck:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    model.open.set()
    await caller.drained()
    assert not caller.stuck


async def test_a_stream_that_begins_too_late_is_not_begun(executor):
    model = Streamer()
    model.first.clear()
    model.open.set()
    caller = Caller(model, executor, workers=1, max_waiting=9, timeout_seconds=0.001)
    given_up = asyncio.Event()
    request = Request("POST", "/", {}, b"", lambda _: given_up.set())
    caller.submit(request)
    await given_up.wait()
    model.first.set()
    await caller.drained()
    assert request.answer
    assert request.answer.status == 500
    assert not caller.stuck


async def test_a_model_of_the_users_code_has_a_slot_for_each_worker(executor):
    assert Caller(Gate(), executor, workers=3, max_waiting=9).slots == 3


async def test_quick_code_gets_more_requests_than_workers(executor):
    class Echo(Gate):
        def call(self, request: Request) -> Answer:
            return Answer(200, request.body)

    class StandingClock:
        def monotonic(self) -> float:
            return 7.0

    caller = Caller(Echo(), executor, workers=2, max_waiting=1000, clock=StandingClock())
    assert caller.slots == 2
    for request in requests(*[b"x"] * 300):
        caller.submit(request)
    await caller.drained()
    assert caller.slots == 16
