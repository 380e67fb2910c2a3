"""Cancelled requests, and links that end, at the container's end of a link."""

import asyncio
import os

import pytest

from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.serving.first_bytes import FirstBytes
from sagehen.link.begun_marks import BegunMarks
from sagehen.link.client import LinkClient
from sagehen.link.frames import (
    CANCEL,
    DATA,
    INLINE_BYTES,
    WINDOW_BYTES,
    encode_frame,
    encode_window,
)
from support.clock import HandClock
from support.link_gateway import MEBIBYTE, Gateway, Stream, begin, data, large, request
from support.links import Dialler, Request, interleaving, settle


@pytest.fixture
async def gateway(tmp_path):
    return Gateway(tmp_path).greet()


# Cancellation


async def test_cancelled_requests_are_answered_by_nothing(gateway):
    gateway.send(request(1), begin(2, 9 * MEBIBYTE), data(2, b"x"), request(3), request(4))
    waiting, streaming, sending = gateway.requests
    stream = Stream(b"first")
    streaming.respond(ModelAnswer(200, stream=stream))
    sending.respond(ModelAnswer(200, bytes(2 * WINDOW_BYTES)))
    await settle()
    before = len(gateway.frames)
    gateway.send(*(encode_frame(CANCEL, number) for number in (1, 2, 3, 4, 4, 77)))
    assert waiting.abandoned
    assert stream.was_abandoned
    assert gateway.server.body_budget.reserved_bytes == 0
    waiting.respond(ModelAnswer(200, b"late"))
    stream.end(whole=False)
    gateway.send(encode_window(4, INLINE_BYTES), data(2, b"late"))
    await settle()
    assert len(gateway.frames) == before
    assert gateway.has_nothing_left


async def test_a_stream_of_a_cancelled_request_is_ended_once(gateway):
    """It waits for room on the link when it is cancelled, and its worker ends it then."""
    fillers = list(range(10, 16))
    gateway.send(*(request(number) for number in (*fillers, 1)))
    *others, one = gateway.requests
    gateway.pipe.is_stalled = True
    for other in others:
        other.respond(ModelAnswer(200, bytes(WINDOW_BYTES)))
    stream = Stream(bytes(INLINE_BYTES))
    one.respond(ModelAnswer(200, stream=stream))
    await settle()
    gateway.send(encode_frame(CANCEL, 1))
    stream.end(whole=False)
    gateway.pipe.go_on()
    await settle(200)
    assert gateway.has_nothing_left
    assert not gateway.of(CANCEL)


async def test_an_abandoned_stream_is_abandoned_when_it_begins(gateway):
    gateway.send(request(1), encode_frame(CANCEL, 1))
    stream = Stream(b"first")
    gateway.requests[0].respond(ModelAnswer(200, stream=stream))
    assert stream.was_abandoned
    assert gateway.has_nothing_left


# Marks


async def test_begun_requests_are_marked_and_cancelled_ones_are_not(tmp_path):
    marks = BegunMarks(tmp_path / "marks")
    gateway = Gateway(tmp_path).greet("marks")
    one, two = 3 << 16 | 1, 3 << 16 | 2
    gateway.send(request(one), request(two), encode_frame(CANCEL, two))
    for each in gateway.requests:
        each.mark_begun()
    begun = marks.read()
    assert one in begun
    assert two not in begun
    gateway.pipe.abort()
    await settle()
    gateway.requests[0].mark_begun()  # after the end
    marks.close()


@pytest.mark.parametrize("end", ["abort", "refuse"])
async def test_nothing_begins_once_the_link_ends(tmp_path, end):
    """The gateway sends what has no mark to other instances."""
    marks = BegunMarks(tmp_path / "marks")
    gateway = Gateway(tmp_path).greet("marks")
    gateway.send(request(1 << 16))
    if end == "abort":
        gateway.server.abort()
    else:
        gateway.connection.refuse("reason")
    gateway.requests[0].mark_begun()
    assert gateway.requests[0].abandoned
    assert 1 << 16 not in marks.read()
    await settle()
    assert gateway.has_nothing_left
    marks.close()


# The end


async def test_a_lost_link_abandons_everything(gateway):
    gateway.send(request(1), begin(2, 9 * MEBIBYTE), request(3), request(4))
    waiting, streaming, sending = gateway.requests
    stream = Stream(b"first")
    streaming.respond(ModelAnswer(200, stream=stream))
    sending.respond(ModelAnswer(200, bytes(2 * WINDOW_BYTES)))
    gateway.pipe.abort()
    await settle()
    assert waiting.abandoned
    assert stream.was_abandoned
    waiting.respond(ModelAnswer(200))
    stream.end(whole=True)
    await settle()
    assert gateway.has_nothing_left
    assert gateway.server.body_budget.reserved_bytes == 0
    assert not gateway.server.connections


async def test_a_server_that_drains_ends_the_link_after_what_is_due(gateway):
    gateway.send(request(1), request(2), request(3))
    small, sent, streamed = gateway.requests
    draining = asyncio.create_task(gateway.server.drain())
    await settle()
    stream = Stream(b"first")
    small.respond(ModelAnswer(200))
    sent.respond(ModelAnswer(200, bytes(WINDOW_BYTES + 1)))
    streamed.respond(ModelAnswer(200, stream=stream))
    await settle()
    assert not gateway.pipe.is_closing()
    stream.end(whole=True)
    await settle()
    # A window is missing.
    assert not gateway.pipe.is_closing()
    gateway.send(request(4), encode_window(2, INLINE_BYTES))
    await settle()
    assert gateway.pipe.is_lost
    await draining
    assert sum(len(frame[5]) for frame in gateway.of(DATA) if frame[2] == 2) == WINDOW_BYTES + 1
    assert gateway.answers()[4][0] == 503


async def test_an_answer_without_a_window_ends_with_its_cancellation(gateway):
    gateway.send(request(1))
    gateway.requests[0].respond(ModelAnswer(200, bytes(WINDOW_BYTES + 1)))
    gateway.connection.close()
    await settle()
    assert not gateway.pipe.is_closing()
    gateway.send(encode_frame(CANCEL, 1))
    await settle()
    assert gateway.pipe.is_lost


async def test_neither_answers_nor_links_leave_cycles(tmp_path, kept):
    gateways = []
    for end in ("abort", "refuse"):
        gateway = Gateway(tmp_path).greet()
        gateways.append(gateway)  # its server is none of what is counted
        gateway.send(request(1), *large(2, bytes(2 * INLINE_BYTES)), request(3), request(4))
        gateway.requests[0].respond(ModelAnswer(200, b"4"))
        gateway.requests[1].respond(ModelAnswer(200, bytes(WINDOW_BYTES + 1)))
        gateway.send(encode_window(3, 1))
        whole, broken = Stream(b"x"), Stream(b"x")
        gateway.requests[2].respond(ModelAnswer(200, stream=whole))
        gateway.requests[3].respond(ModelAnswer(200, stream=broken))
        whole.end(whole=True)
        gateway.send(encode_frame(CANCEL, 4))
        await settle()
        getattr(gateway.connection, end)(*(["reason"] if end == "refuse" else []))
        await settle()
        gateway.requests.clear()
        del whole, broken
    await settle()
    assert kept() == {}


# Both sides


class Both(Gateway):
    """A model server, and a real client of it."""

    def __init__(self, folder):
        super().__init__(folder)
        self.dialler = Dialler(lambda: FirstBytes(self.server, folder))
        self.client = LinkClient(
            f"link:{folder}/socket", HandClock(), connector=self.dialler.connect
        )


@pytest.fixture
async def both(tmp_path):
    """A model server that the test answers for, and a client of it."""
    return Both(tmp_path)


async def test_a_large_body_and_small_requests_share_the_link(both):
    body = os.urandom(25 * MEBIBYTE)
    large = Request(both.client, body)
    small = []
    while not any(len(one.body) > INLINE_BYTES for one in both.requests):
        small.append(Request(both.client, b"small"))
        await settle(2)
        for one in both.requests:
            if one.body == b"small":
                one.respond(ModelAnswer(200, b"4"))
    await settle()
    assert len(small) > 50
    assert sum(one.is_answered for one in small) >= len(small) - 1
    assert interleaving(both.dialler.pipes[0][0].frames) > 50
    received = next(one for one in both.requests if len(one.body) > INLINE_BYTES)
    assert received.body == body
    received.respond(ModelAnswer(200, body))
    await settle(3000)
    assert large.body == body
    assert large.is_answered
    assert both.has_nothing_left


async def test_a_slow_reader_of_a_large_answer_delays_nobody(both):
    slow, quick = Request(both.client, b"1"), Request(both.client, b"2")
    await settle()
    slow.call.pause()
    body = os.urandom(5 * MEBIBYTE)
    for one in both.requests:
        one.respond(ModelAnswer(200, body))
    await settle(1000)
    assert quick.body == body
    assert INLINE_BYTES < len(slow.body) <= WINDOW_BYTES
    assert len(both.dialler.pipes[0][1]._pending) == 0
    slow.call.resume()
    await settle(1000)
    assert slow.body == body


async def test_what_a_killed_container_had_not_begun_is_told_from_the_rest(both):
    requests = [Request(both.client, b"%d" % number) for number in range(10)]
    await settle()
    for one in both.requests[:4]:
        one.mark_begun()
    both.dialler.pipes[0][1].abort()
    await settle()
    assert all(one.is_broken for one in requests)
    assert [one.call.not_begun for one in requests] == [False] * 4 + [True] * 6
