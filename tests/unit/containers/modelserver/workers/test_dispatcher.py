"""The queue before a model in workers, and the lanes to them: without any process."""

import asyncio

import pytest

from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest
from sagehen.containers.modelserver.workers.dispatcher import WorkerDispatcher
from sagehen.containers.modelserver.workers.messages import Abandon, Answered, CallMessage, Taken
from sagehen.containers.modelserver.workers.worker_queue import SESSION, WorkerQueue


class FakeWorker:
    """Keeps what it was sent; answers when the test says so."""

    def __init__(self) -> None:
        self.sent = []
        self.ended = asyncio.get_running_loop().create_future()

    def send(self, message, body=b""):
        self.sent.append((message, body))

    def end(self, why):
        self.ended.set_result(why)

    @property
    def bodies(self):
        return [body for message, body in self.sent if isinstance(message, CallMessage)]


@pytest.fixture
def make_lane():
    def make(caller, timeout_seconds=60.0):
        lane = WorkerQueue(7, FakeWorker(), timeout_seconds, caller)
        caller.add(lane)
        return lane

    return make


def requests(*bodies: bytes) -> list[ModelRequest]:
    return [ModelRequest("POST", "/", {b"a": b"b"}, body, lambda _: None) for body in bodies]


def answered(more=False, seconds=0.0):
    return Answered(7, 200, "text/x", (("k", "v"),), False, seconds, more)


def statuses(asked):
    return [request.answer and request.answer.status for request in asked]


def submit(caller, *bodies):
    asked = requests(*bodies)
    for request in asked:
        caller.submit(request)
    return asked


async def test_some_work_some_wait_and_the_rest_is_refused(make_lane):
    caller = WorkerDispatcher(workers=2, max_waiting=1)
    one, two = make_lane(caller), make_lane(caller)
    asked = submit(caller, b"a", b"b", b"c", b"d")
    assert statuses(asked) == [None, None, None, 503]
    assert (one._worker.bodies, two._worker.bodies) == ([b"a"], [b"b"])
    two.answered(answered(), b"B")
    assert asked[1].answer == ModelAnswer(200, b"B", "text/x", (("k", "v"),))
    assert two._worker.bodies == [b"b", b"c"]
    one.answered(answered(), b"A")
    two.answered(answered(), b"C")
    await caller.drained()
    assert [request.answer.body for request in asked[:3]] == [b"A", b"B", b"C"]


async def test_a_worker_is_told_what_is_asked(make_lane):
    caller = WorkerDispatcher(workers=1, max_waiting=9)
    lane = make_lane(caller)
    submit(caller, b"body")
    assert lane._worker.sent == [(CallMessage(7, 0, {b"a": b"b"}), b"body")]


async def test_a_call_that_takes_too_long_is_answered_and_its_worker_ended(make_lane):
    caller = WorkerDispatcher(workers=1, max_waiting=9)
    lane = make_lane(caller, timeout_seconds=0.001)
    (request,) = submit(caller, b"a")
    assert await lane._worker.ended == "was ended: a call did not come back within 0.001 s"
    assert request.answer.status == 500
    assert b"did not answer within 0.001 seconds" in request.answer.body


async def test_each_call_has_its_time_from_where_it_begins(make_lane, monkeypatch):
    caller = WorkerDispatcher(workers=1, max_waiting=9)
    lane = make_lane(caller, timeout_seconds=10)
    asked = submit(caller, b"a", b"b")
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(lane._loop, "time", lambda: now + 9)
    lane.answered(answered(), b"A")
    monkeypatch.setattr(lane._loop, "time", lambda: now + 11)
    lane._check()
    assert not lane._worker.ended.done()
    monkeypatch.setattr(lane._loop, "time", lambda: now + 20)
    lane._check()
    assert lane._worker.ended.done()
    assert statuses(asked) == [200, 500]


async def test_an_abandoned_request_is_not_begun(make_lane):
    caller = WorkerDispatcher(workers=1, max_waiting=9)
    lane = make_lane(caller)
    _, gone, last = submit(caller, b"a", b"gone", b"c")
    gone.abandoned = True
    lane.answered(answered(), b"")
    assert gone.answer == ModelAnswer(499, close=True)
    assert lane._worker.bodies == [b"a", b"c"]
    lane.answered(answered(), b"C")
    assert last.answer.body == b"C"


async def test_what_a_dead_worker_had_not_begun_goes_first_elsewhere(make_lane):
    caller = WorkerDispatcher(workers=1, max_waiting=9)
    for _ in range(300):  # so that a worker gets several at once
        lane = make_lane(caller)
        submit(caller, b"x")
        lane.answered(answered(), b"")
        caller.remove(lane)
    lane = make_lane(caller)
    asked = submit(caller, *[bytes([number]) for number in range(10)])
    assert len(lane.calls) == 8
    caller.remove(lane, lane.lost("ended with exit status 3"))
    assert statuses(asked) == [500] + [None] * 9
    assert (
        b"The worker process of the model's code ended with exit status 3" in asked[0].answer.body
    )
    after = make_lane(caller)
    assert after._worker.bodies == [bytes([number]) for number in range(1, 9)]


async def test_requests_wait_while_there_is_no_worker(make_lane):
    caller = WorkerDispatcher(workers=1, max_waiting=1)
    asked = submit(caller, b"a", b"b")
    assert statuses(asked) == [None, 503]
    lane = make_lane(caller)
    lane.answered(answered(), b"A")
    assert asked[0].answer.body == b"A"


async def test_what_waits_for_a_model_that_is_gone_is_told(make_lane):
    caller = WorkerDispatcher(workers=1, max_waiting=9)
    lane = make_lane(caller)
    asked = submit(caller, b"a", b"b")
    caller.remove(lane, lane.lost("ended"))
    caller.close(ModelAnswer(404))
    asked += submit(caller, b"c")
    await caller.drained()
    assert statuses(asked) == [500, 404, 404]


async def test_a_session_stays_with_the_worker_that_began_it(make_lane):
    caller = WorkerDispatcher(workers=2, max_waiting=1)
    one, two = make_lane(caller), make_lane(caller)

    def ask(session):
        request = ModelRequest("POST", "/", {SESSION: session}, session, lambda _: None)
        caller.submit(request)
        return request

    submit(caller, b"x")
    ask(b"NEW_SESSION")
    header = ("X-Amzn-SageMaker-Session-Id", "abc; Expires=2099-01-01T00:00:00Z")
    two.answered(Answered(7, 200, "", (header,), False, 0.0, False), b"")
    one.answered(answered(), b"")
    asked = [ask(b"abc") for _ in range(3)]
    assert two._worker.bodies == [b"NEW_SESSION", b"abc", b"abc"]
    assert statuses(asked) == [None, None, 503]  # it waits for no other worker, so not for ever
    closed = ("X-Amzn-SageMaker-Closed-Session-Id", "abc")
    two.answered(Answered(7, 200, "", (closed,), False, 0.0, False), b"")
    ask(b"abc")
    assert one._worker.bodies == [b"x", b"abc"]


async def test_a_session_of_a_dead_worker_goes_anywhere(make_lane):
    caller = WorkerDispatcher(workers=2, max_waiting=1)
    one = make_lane(caller)
    caller.learn_session(one, (("x-amzn-sagemaker-session-id", "abc"),))
    caller.remove(one, one.lost("ended"))
    two = make_lane(caller)
    caller.submit(ModelRequest("POST", "/", {SESSION: b"abc"}, b"later", lambda _: None))
    assert two._worker.bodies == [b"later"]


async def begun_stream(lane, caller):
    (request,) = submit(caller, b"")
    lane.answered(answered(more=True), b"first")
    return request, request.answer.stream


async def test_a_stream_may_take_longer_than_a_call(make_lane):
    caller = WorkerDispatcher(workers=1, max_waiting=9)
    lane = make_lane(caller, timeout_seconds=0.001)
    request, stream = await begun_stream(lane, caller)
    await asyncio.sleep(0.01)
    assert not lane._worker.ended.done()
    lane.add_piece(b"second")
    lane.end_stream(whole=True)
    await caller.drained()
    assert request.answer.headers == (("k", "v"),)
    assert [stream.take(), stream.take(), stream.take()] == [b"first", b"second", None]
    assert stream.over
    assert stream.whole


async def test_what_is_taken_of_a_stream_is_told_but_not_each_time(make_lane):
    caller = WorkerDispatcher(workers=1, max_waiting=9)
    lane = make_lane(caller)
    _, stream = await begun_stream(lane, caller)
    lane.add_piece(bytes(40_000))
    stream.take()
    assert lane._worker.bodies == [b""]
    assert len(lane._worker.sent) == 1
    stream.take()
    assert lane._worker.sent[1:] == [(Taken(7, 0, 40_005), b"")]


async def test_a_stream_that_does_not_stop_when_abandoned_ends_its_worker(make_lane):
    caller = WorkerDispatcher(workers=1, max_waiting=9)
    lane = make_lane(caller, timeout_seconds=0.001)
    _, stream = await begun_stream(lane, caller)
    stream.abandon()
    stream.abandon()
    assert lane._worker.sent[1:] == [(Abandon(7, 0), b"")]
    await lane._worker.ended


async def test_a_stream_breaks_off_with_its_worker(make_lane):
    caller = WorkerDispatcher(workers=1, max_waiting=9)
    lane = make_lane(caller)
    _, stream = await begun_stream(lane, caller)
    caller.remove(lane, lane.lost("ended"))
    assert stream.take() == b"first"
    assert stream.over
    assert not stream.whole


async def test_a_model_of_the_users_code_has_a_slot_for_each_worker():
    assert WorkerDispatcher(workers=3, max_waiting=9).slots == 3


async def test_quick_code_gets_more_requests_than_workers(make_lane):
    caller = WorkerDispatcher(workers=2, max_waiting=1000)
    lane = make_lane(caller)
    for _ in range(300):
        submit(caller, b"x")
        lane.answered(answered(seconds=0.0001), b"")
    assert caller.slots == 16
