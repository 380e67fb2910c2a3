"""One worker's calls for one model: time limits and streams, without any process."""

import asyncio

import msgspec
import pytest

from sagehen.containers.modelserver.workers.dispatcher import WorkerDispatcher
from sagehen.containers.modelserver.workers.messages import Abandon, CallMessage, Taken
from sagehen.containers.modelserver.workers.worker_queue import (
    MAX_SESSIONS,
    SESSION,
    SessionAffinity,
)
from support.fixtures.worker_queues import answered, make_queue, statuses, submit

__all__ = ["make_queue"]


async def test_a_worker_is_told_what_is_asked(make_queue):
    dispatcher = WorkerDispatcher(workers=1, max_waiting=9)
    queue = make_queue(dispatcher)
    submit(dispatcher, b"body")
    assert queue._worker.sent == [(CallMessage(7, 0, {b"a": b"b"}), b"body")]


async def test_a_call_that_takes_too_long_is_answered_and_its_worker_ended(make_queue):
    dispatcher = WorkerDispatcher(workers=1, max_waiting=9)
    queue = make_queue(dispatcher, timeout_seconds=0.001)
    (request,) = submit(dispatcher, b"a")
    assert await queue._worker.ended == "was ended: a call did not come back within 0.001 s"
    assert request.answer.status == 500
    assert b"did not answer within 0.001 seconds" in request.answer.body


async def test_each_call_has_its_time_from_where_it_begins(make_queue, monkeypatch):
    dispatcher = WorkerDispatcher(workers=1, max_waiting=9)
    queue = make_queue(dispatcher, timeout_seconds=10)
    asked = submit(dispatcher, b"a", b"b")
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(queue._loop, "time", lambda: now + 9)
    queue.answered(answered(), b"A")
    monkeypatch.setattr(queue._loop, "time", lambda: now + 11)
    queue._check()
    assert not queue._worker.ended.done()
    monkeypatch.setattr(queue._loop, "time", lambda: now + 20)
    queue._check()
    assert queue._worker.ended.done()
    assert statuses(asked) == [200, 500]


@pytest.mark.parametrize("status", [100, 101, 199, 0, -1, 600])
async def test_a_status_that_is_not_final_is_not_sent(make_queue, status):
    """A client takes what follows an interim answer for the answer, perhaps to its next request."""
    dispatcher = WorkerDispatcher(workers=1, max_waiting=9)
    queue = make_queue(dispatcher)
    (request,) = submit(dispatcher, b"a")
    queue.answered(msgspec.structs.replace(answered(), status=status), b"HTTP/1.1 200 OK")
    assert request.answer.status == 500
    assert b"HTTP" not in request.answer.body


async def begun_stream(queue, dispatcher):
    (request,) = submit(dispatcher, b"")
    queue.answered(answered(more=True), b"first")
    return request, request.answer.stream


async def test_a_stream_may_take_longer_than_a_call(make_queue):
    dispatcher = WorkerDispatcher(workers=1, max_waiting=9)
    queue = make_queue(dispatcher, timeout_seconds=0.001)
    request, stream = await begun_stream(queue, dispatcher)
    await asyncio.sleep(0.01)
    assert not queue._worker.ended.done()
    queue.add_piece(b"second")
    queue.end_stream(whole=True)
    await dispatcher.drained()
    assert request.answer.headers == (("k", "v"),)
    assert [stream.take(), stream.take(), stream.take()] == [b"first", b"second", None]
    assert stream.over
    assert stream.whole


async def test_what_is_taken_of_a_stream_is_told_but_not_each_time(make_queue):
    dispatcher = WorkerDispatcher(workers=1, max_waiting=9)
    queue = make_queue(dispatcher)
    _, stream = await begun_stream(queue, dispatcher)
    queue.add_piece(bytes(40_000))
    stream.take()
    assert queue._worker.bodies == [b""]
    assert len(queue._worker.sent) == 1
    stream.take()
    assert queue._worker.sent[1:] == [(Taken(7, 0, 40_005), b"")]


async def test_a_stream_that_does_not_stop_when_abandoned_ends_its_worker(make_queue):
    dispatcher = WorkerDispatcher(workers=1, max_waiting=9)
    queue = make_queue(dispatcher, timeout_seconds=0.001)
    _, stream = await begun_stream(queue, dispatcher)
    stream.abandon()
    stream.abandon()
    assert queue._worker.sent[1:] == [(Abandon(7, 0), b"")]
    await queue._worker.ended


async def test_a_stream_breaks_off_with_its_worker(make_queue):
    dispatcher = WorkerDispatcher(workers=1, max_waiting=9)
    queue = make_queue(dispatcher)
    _, stream = await begun_stream(queue, dispatcher)
    dispatcher.remove(queue, queue.lost("ended"))
    assert stream.take() == b"first"
    assert stream.over
    assert not stream.whole


class TestSessionAffinity:
    def headers(self, session: str) -> dict[bytes, bytes]:
        return {SESSION: session.encode()}

    def test_a_session_has_the_worker_that_began_it_until_it_ends(self) -> None:
        affinity: SessionAffinity[str] = SessionAffinity()
        affinity.learn("first", [("X-Amzn-SageMaker-Session-Id", "abc; Expires=2030")])
        assert affinity.holder(self.headers("abc")) == "first"
        assert affinity.holder(self.headers("other")) is None
        assert affinity.holder(self.headers("NEW_SESSION")) is None
        assert affinity.holder({}) is None
        affinity.learn("first", [("x-amzn-sagemaker-closed-session-id", "abc")])
        assert affinity.holder(self.headers("abc")) is None

    def test_the_sessions_of_a_worker_that_is_gone_are_forgotten(self) -> None:
        affinity: SessionAffinity[str] = SessionAffinity()
        for name, worker in (("a", "first"), ("b", "second"), ("c", "first")):
            affinity.learn(worker, [(SESSION.decode(), name)])
        affinity.forget("first")
        assert [affinity.holder(self.headers(name)) for name in "abc"] == [None, "second", None]

    def test_the_least_recently_used_session_is_forgotten_first(self) -> None:
        affinity: SessionAffinity[str] = SessionAffinity()
        for number in range(MAX_SESSIONS):
            affinity.learn("worker", [(SESSION.decode(), str(number))])
        assert affinity.holder(self.headers("0")) == "worker"
        affinity.learn("worker", [(SESSION.decode(), "new")])
        assert affinity.holder(self.headers("0")) == "worker"
        assert affinity.holder(self.headers("1")) is None
