"""Large bodies and answers over the container's end of a link."""

import os

import pytest

from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.serving.server import RECEIVE_SECONDS
from sagehen.link.frames import (
    ANSWER,
    CANCEL,
    DATA,
    END,
    INLINE_BYTES,
    LARGE_ANSWER,
    LARGE_REQUEST,
    REFUSAL,
    WINDOW,
    WINDOW_BYTES,
    body_length,
    encode_frame,
    encode_window,
    window_bytes,
)
from support.link_gateway import HEAD, MEBIBYTE, Gateway, Stream, begin, data, large, request
from support.links import settle


@pytest.fixture
async def gateway(tmp_path):
    return Gateway(tmp_path).greet()


# Large requests


async def test_a_large_body_is_collected_as_windows_allow(gateway):
    body = os.urandom(WINDOW_BYTES + INLINE_BYTES + 3)
    gateway.send(*large(1, body)[:-1])
    assert not gateway.requests
    gateway.send(large(1, body)[-1])
    assert gateway.requests[0].body == body
    await settle()
    windows = [window_bytes(frame[5]) for frame in gateway.of(WINDOW)]
    assert windows == [WINDOW_BYTES // 2, WINDOW_BYTES // 2]
    gateway.requests[0].respond(ModelAnswer(200))
    assert gateway.has_nothing_left


async def test_several_large_bodies_come_at_once_with_small_requests_between(gateway):
    bodies = {number: os.urandom(3 * INLINE_BYTES + number) for number in range(1, 6)}
    queues = [large(number, body) for number, body in bodies.items()]
    for at, frames in enumerate(zip(*queues, strict=True)):
        gateway.send(*frames, request(100 + at))
    assert [one.body for one in gateway.requests if len(one.body) > 9] == list(bodies.values())
    assert len(gateway.requests) == 5 + len(queues[0])


@pytest.mark.parametrize(
    "frames",
    [
        [begin(1, 3), data(1, b"1234")],
        [begin(1, 3), data(1, b"12", is_last=True)],
        [begin(1, 3), data(1)],
        [encode_frame(LARGE_REQUEST, 1, HEAD)],
        [encode_frame(LARGE_REQUEST, 1, HEAD, b"123")],
    ],
    ids=["too long", "too short", "empty", "no length", "length"],
)
async def test_a_body_that_is_not_what_was_announced_ends_the_link(gateway, frames):
    gateway.send(*frames)
    await settle()
    assert gateway.refusal
    assert not gateway.requests
    assert gateway.has_nothing_left


async def test_more_than_the_window_ends_the_link(gateway):
    """The body waits for memory, so that no window is opened."""
    gateway.send(begin(1, 20 * MEBIBYTE))
    gateway.server.body_budget.most_bytes = 0
    gateway.send(begin(2, 20 * MEBIBYTE))
    gateway.send(*(data(2, bytes(INLINE_BYTES)) for _ in range(WINDOW_BYTES // INLINE_BYTES)))
    assert not gateway.of(REFUSAL)
    gateway.send(data(2, b"1"))
    await settle()
    assert "window" in gateway.refusal
    assert gateway.server.body_budget.reserved_bytes == 0
    assert gateway.server.body_budget.waiting == 0


async def test_a_body_that_is_too_large_is_refused_before_it_comes(gateway):
    gateway.send(begin(1, 30 * MEBIBYTE + 1), data(1, bytes(100)), request(2))
    gateway.requests[0].respond(ModelAnswer(200))
    await settle()
    assert [status for status, _ in gateway.answers().values()] == [413, 200]


async def test_large_bodies_wait_for_memory_and_hold_up_nobody(gateway):
    budget = gateway.server.body_budget
    budget.most_bytes = 20 * MEBIBYTE
    gateway.send(begin(1, 15 * MEBIBYTE), begin(2, 15 * MEBIBYTE))
    for _ in range(WINDOW_BYTES // INLINE_BYTES):
        gateway.send(data(1, bytes(INLINE_BYTES)), data(2, bytes(INLINE_BYTES)))
    gateway.send(request(3))
    await settle()
    assert {frame[2] for frame in gateway.of(WINDOW)} == {1}
    assert len(gateway.requests) == 1
    for _ in range(3):  # Its time counts from when there is memory.
        gateway.sweep(RECEIVE_SECONDS - 1)
        gateway.send(data(1, b"1"))
    gateway.send(encode_frame(CANCEL, 1))
    await settle()
    assert {frame[2] for frame in gateway.of(WINDOW)} == {1, 2}
    gateway.send(encode_frame(CANCEL, 2))
    assert budget.reserved_bytes == 0


async def test_memory_is_held_until_the_answer(gateway):
    body = bytes(9 * MEBIBYTE)
    gateway.send(*large(1, body))
    budget = gateway.server.body_budget
    assert budget.reserved_bytes == len(body)
    gateway.requests[0].respond(ModelAnswer(200))
    assert budget.reserved_bytes == 0


async def test_a_body_that_stops_coming_is_given_up(gateway):
    gateway.send(begin(1, 100), data(1, b"x"))
    gateway.sweep(1)
    gateway.sweep(RECEIVE_SECONDS - 1)
    gateway.send(data(1, b"x"))
    gateway.sweep(2)
    gateway.sweep(RECEIVE_SECONDS)
    assert not gateway.of(CANCEL)
    gateway.sweep(1)
    gateway.send(data(1, b"late"), request(2))
    await settle()
    assert [frame[2] for frame in gateway.of(CANCEL)] == [1]
    assert len(gateway.requests) == 1


async def test_bodies_that_wait_for_memory_are_turned_away_by_a_server_that_drains(gateway):
    gateway.server.body_budget.most_bytes = 0
    gateway.send(begin(1, 10 * MEBIBYTE), begin(2, 10 * MEBIBYTE))
    gateway.server.draining = True
    gateway.connection.turn_away()
    gateway.send(begin(3, 10 * MEBIBYTE))
    await settle()
    assert {number: status for number, (status, _) in gateway.answers().items()} == {
        2: 503,
        3: 503,
    }


# Large answers


async def test_a_large_answer_is_sent_as_windows_allow(gateway):
    body = os.urandom(WINDOW_BYTES + 5)
    gateway.send(request(1), request(2))
    gateway.requests[0].respond(ModelAnswer(200, body, "text/csv"))
    gateway.requests[1].respond(ModelAnswer(200, b"small"))
    await settle()
    (head,) = gateway.of(LARGE_ANSWER)
    assert (head[2], head[3], body_length(head[5])) == (1, 200, len(body))
    assert gateway.answers() == {2: (200, b"small")}
    assert 1 in gateway.connection._sending
    gateway.send(encode_window(1, INLINE_BYTES))
    await settle()
    pieces = gateway.of(DATA)
    assert b"".join(piece[5] for piece in pieces) == body
    assert pieces[-1][1] == END
    assert gateway.connection._sending == {}
    gateway.send(encode_window(1, INLINE_BYTES))  # late
    assert not gateway.of(REFUSAL)


async def test_an_answer_over_the_limit_is_an_error(gateway):
    gateway.server.max_answer_bytes = 10
    gateway.send(request(1), request(2))
    gateway.requests[0].respond(ModelAnswer(200, bytes(11)))
    stream = Stream(bytes(6))
    gateway.requests[1].respond(ModelAnswer(200, stream=stream))
    stream.add(bytes(6))
    await settle()
    assert gateway.answers()[1][0] == 500
    assert stream.was_abandoned
    assert [frame[2] for frame in gateway.of(CANCEL)] == [2]
    assert gateway.has_nothing_left


async def test_a_streamed_answer_comes_as_it_is_made(gateway):
    gateway.send(request(1))
    stream = Stream(b"first ")
    gateway.requests[0].respond(ModelAnswer(200, content_type="text/plain", stream=stream))
    await settle()
    (head,) = gateway.of(LARGE_ANSWER)
    assert (head[4], head[5]) == (b"content-type: text/plain\r\n", b"")
    stream.add(b"second")
    await settle()
    assert [frame[5] for frame in gateway.of(DATA)] == [b"first ", b"second"]
    stream.end(whole=True)
    await settle()
    assert gateway.of(DATA)[-1][1] == END
    assert gateway.has_nothing_left
    assert gateway.connection._sending == {}


async def test_a_stream_that_breaks_off_is_cancelled(gateway):
    gateway.send(request(1), request(2))
    stream = Stream(b"first")
    gateway.requests[0].respond(ModelAnswer(200, stream=stream))
    stream.end(whole=False)
    gateway.requests[1].respond(ModelAnswer(200))
    await settle()
    assert [(frame[0], frame[2]) for frame in gateway.frames[2:]] == [
        (LARGE_ANSWER, 1),
        (DATA, 1),
        (CANCEL, 1),
        (ANSWER, 2),
    ]
    assert gateway.has_nothing_left


async def test_a_slow_reader_pauses_the_worker_of_its_stream_only(gateway):
    gateway.send(request(1), request(2))
    slow, quick = Stream(b"x"), Stream(b"x")
    for one, stream in zip(gateway.requests, (slow, quick), strict=True):
        one.respond(ModelAnswer(200, stream=stream))
    for _ in range(10):
        slow.add(bytes(INLINE_BYTES))
        quick.add(bytes(INLINE_BYTES))
        await settle()
        gateway.send(encode_window(2, INLINE_BYTES // 2), encode_window(2, INLINE_BYTES // 2))
    assert quick.taken > 9 * INLINE_BYTES
    assert slow.taken <= WINDOW_BYTES + 2 * INLINE_BYTES
    gateway.send(encode_window(1, WINDOW_BYTES))
    await settle()
    assert slow.taken > WINDOW_BYTES + 2 * INLINE_BYTES
