"""A server's connection, without a socket: what is answered, refused, awaited and cut off."""

import asyncio
import math
from dataclasses import replace

import pytest

from sagehen.http1.limits import ConnectionLimit
from sagehen.http1.server import LINGER_IDLE_SECONDS, LINGER_SECONDS
from support.caller import Caller, answers_in
from support.http1 import LIMITS, Connection, Host

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class PipelinedConnection(Connection):
    """Begins requests at once, as the model server does."""

    __slots__ = ("turns",)

    begun_at_once = 3
    keeps_half_closed = False

    def __init__(self, host):
        super().__init__(host)
        self.turns = []

    def turn_of(self, exchange):
        self.turns.append(exchange.target)


class Peer:
    """A client and the connection that serves it."""

    def __init__(self, kind=Connection, **host):
        self.host = Host(**host)
        self.connection = kind(self.host)
        self.caller = Caller(self.connection)

    def send(self, data):
        self.connection.data_received(data)

    def wait(self, seconds):
        self.host.now += seconds
        self.connection.cut_off_if_overdue(self.host.now)

    @property
    def answers(self):
        return answers_in(self.caller.received)

    @property
    def targets(self):
        return [request.exchange.target for request in self.host.requests]


async def next_turn():
    """Of the event loop, in which a pipelined request begins."""
    await asyncio.sleep(0)


@pytest.fixture
def peer():
    return Peer()


@pytest.fixture
def pipelined():
    return Peer(PipelinedConnection)


def request(target=b"/a", body=b"", *fields, version=b"1.1", method=b"POST"):
    lines = [b"%b %b HTTP/%b" % (method, target, version), b"Host: h", *fields]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


async def test_a_request_begins_when_the_earlier_ones_are_answered(peer):
    peer.send(request(b"/a") + request(b"/b", b"body"))
    assert peer.targets == [b"/a"]
    assert peer.caller.paused, "It has sent more than is answered."
    peer.host.requests[0].answer()
    await next_turn()
    assert peer.targets == [b"/a", b"/b"]
    assert peer.host.requests[1].received == b"body"
    assert not peer.caller.paused


def test_requests_may_begin_at_once_and_be_answered_in_order(pipelined):
    pipelined.send(request(b"/a") + request(b"/b", b"body") + request(b"/c"))
    assert pipelined.targets == [b"/a", b"/b", b"/c"]
    assert all(one.is_whole for one in pipelined.host.requests)
    channel = pipelined.connection
    current = [channel.is_current(one.exchange) for one in pipelined.host.requests]
    assert current == [True, False, False]
    first, second, third = pipelined.host.requests
    first.answer()
    assert pipelined.connection.turns == [b"/b"]
    second.answer()
    third.answer()
    assert len(pipelined.answers) == 3


def test_reading_pauses_while_more_are_unanswered_than_may_begin(pipelined):
    pipelined.send(request() * 3)
    assert not pipelined.caller.paused
    pipelined.send(request())
    assert pipelined.caller.paused
    pipelined.host.requests[0].answer()
    assert not pipelined.caller.paused


def test_reading_pauses_while_a_client_that_pipelines_does_not_read(pipelined):
    pipelined.send(request())
    pipelined.connection.pause_writing()
    assert pipelined.caller.paused
    assert pipelined.connection.is_blocked
    assert pipelined.host.requests[0].full
    pipelined.connection.resume_writing()
    assert not pipelined.caller.paused
    assert not pipelined.host.requests[0].full


def test_a_client_that_reads_nothing_may_send_its_body(peer):
    """It may read the answer only behind its request."""
    peer.send(request(b"/a", b"body")[:-1])
    peer.connection.pause_writing()
    assert not peer.caller.paused


@pytest.mark.parametrize(
    ("expectation", "version", "asked_for"),
    [
        (b"100-continue", b"1.1", True),
        (b"100-Continue", b"1.1", True),
        (b"something-else", b"1.1", False),
        (b"100-continue", b"1.0", False),
    ],
)
def test_a_body_is_asked_for_by_the_value_of_expect(peer, expectation, version, asked_for):
    whole = request(b"/a", b"body", b"Expect: " + expectation, version=version)
    peer.send(whole[:-4])
    assert peer.caller.received == (CONTINUE if asked_for else b"")


def test_an_answer_to_head_has_no_body(peer):
    peer.send(request(method=b"HEAD"))
    peer.host.requests[0].answer(405, b"not that")
    head, end, body = bytes(peer.caller.received).partition(b"\r\n\r\n")
    assert b"Content-Length: 8" in head
    assert (end, body) == (b"\r\n\r\n", b"")


def test_answers_have_a_date(peer):
    peer.send(request())
    peer.host.requests[0].answer()
    assert peer.answers[0].headers["date"] == "Sun, 01 Nov 2026 09:30:00 GMT"


def test_http_1_0_is_kept_only_if_it_asks_and_has_no_chunks(peer):
    peer.send(request(b"/a", b"", b"Connection: keep-alive", version=b"1.0"))
    peer.host.requests[0].answer()
    assert peer.answers[0].headers["connection"] == "keep-alive"
    peer.send(request(b"/b", version=b"1.0"))
    exchange = peer.host.requests[1].exchange
    exchange.begin_answer(200, b"", None, bodiless=False)
    exchange.continue_answer(b"piece")
    exchange.end_answer()
    assert peer.caller.received.endswith(b"Connection: close\r\n\r\npiece")
    assert peer.caller.has_closed


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_has_no_length(peer, status):
    peer.send(request())
    exchange = peer.host.requests[0].exchange
    exchange.begin_answer(status, b"", None, bodiless=True)
    exchange.end_answer()
    (answer,) = peer.answers
    assert (answer.status, set(answer.headers)) == (status, {"date"})


FRAMINGS = {
    "both": (b"Transfer-Encoding: chunked", 400),
    "length twice": (b"Content-Length: 3", 400),
    "another coding": (b"Transfer-Encoding: gzip, chunked", 501),
}


@pytest.mark.parametrize("kind", [Connection, PipelinedConnection])
@pytest.mark.parametrize("framing", FRAMINGS)
def test_what_could_be_read_in_two_ways_is_refused(kind, framing):
    field, status = FRAMINGS[framing]
    peer = Peer(kind)
    data = request(b"/a", b"0\r\n\r\n", field)
    if status == 501:
        data = data.replace(b"Content-Length: 5\r\n", b"")
    peer.send(data + request(b"/smuggled"))
    assert [answer.status for answer in peer.answers] == [status]
    assert peer.answers[0].headers["connection"] == "close"
    assert b"/smuggled" not in peer.targets


async def test_a_refusal_waits_for_the_answers_before_it(peer):
    peer.send(request() + b"nonsense\r\n\r\n")
    assert peer.caller.received == b""
    peer.host.requests[0].answer()
    await next_turn()
    assert [answer.status for answer in peer.answers] == [200, 400]


def test_unreadable_input_in_a_body_ends_its_request(peer):
    peer.send(
        request(b"/a", b"x", b"X: y").replace(b"Content-Length: 1", b"Transfer-Encoding: chunked")
    )
    (begun, refused) = peer.host.requests
    assert begun.gone
    assert refused.exchange.fault.status == 400
    assert [answer.status for answer in peer.answers] == [400]


def refuse_midway(peer):
    peer.send(request(b"/a", bytes(100))[:-50])
    peer.host.requests[0].answer(413)
    assert peer.caller.has_ended
    assert not peer.caller.has_closed


def test_a_client_that_still_sends_has_time_to_read_its_answer(peer):
    refuse_midway(peer)
    for _ in range(3):
        peer.wait(LINGER_IDLE_SECONDS - 1)
        peer.send(bytes(10))
        assert not peer.caller.has_closed
    assert len(peer.host.requests) == 1, "What it sends is discarded."
    peer.wait(LINGER_IDLE_SECONDS + 1)
    assert peer.caller.has_closed


def test_a_client_that_sends_for_ever_is_cut_off(peer):
    refuse_midway(peer)
    waited = 0.0
    while not peer.caller.has_closed:
        peer.wait(LINGER_IDLE_SECONDS - 1)
        peer.send(bytes(10))
        waited += LINGER_IDLE_SECONDS - 1
    assert LINGER_SECONDS < waited < LINGER_SECONDS + LINGER_IDLE_SECONDS


def test_a_dripping_head_is_refused(peer):
    peer.send(b"GET / HTTP/1.1\r\n")
    peer.wait(LIMITS.head_seconds - 1)
    peer.send(b"Host: h\r\n")
    assert not peer.answers
    peer.wait(2)
    assert [answer.status for answer in peer.answers] == [408]
    assert peer.host.hits == [ConnectionLimit.HEAD_TIMEOUT]


def test_a_body_has_its_time_for_each_piece(peer):
    peer.send(request(b"/a", bytes(100))[:-50])
    for _ in range(3):
        peer.wait(LIMITS.stall_seconds - 1)
        peer.send(bytes(10))
    assert not peer.caller.has_closed
    peer.wait(LIMITS.stall_seconds + 1)
    assert peer.caller.has_closed
    assert peer.host.hits == [ConnectionLimit.STALL]


def test_time_in_which_reading_is_paused_is_not_the_client_s(peer):
    peer.send(request(b"/a", bytes(100))[:-50])
    peer.host.requests[0].exchange.channel.hold()
    peer.wait(10 * LIMITS.stall_seconds)
    assert not peer.caller.has_closed
    peer.host.requests[0].exchange.channel.release()
    peer.wait(LIMITS.stall_seconds - 1)
    assert not peer.caller.has_closed


@pytest.mark.parametrize(("idle_seconds", "closes"), [(300, True), (math.inf, False)])
def test_an_idle_connection_is_closed_unless_there_is_no_limit(peer, idle_seconds, closes):
    peer.host.limits = replace(LIMITS, idle_seconds=idle_seconds)
    peer.wait(1_000_000)
    assert peer.caller.has_closed == closes


def test_a_draining_server_ends_a_connection_with_its_answer(peer):
    peer.send(request())
    peer.host.draining = True
    peer.host.requests[0].answer()
    assert peer.answers[0].headers["connection"] == "close"
    assert peer.caller.has_closed


def test_a_draining_server_answers_all_that_it_has_begun(pipelined):
    pipelined.send(request() * 2)
    pipelined.host.draining = True
    for begun in pipelined.host.requests:
        begun.answer()
    assert [one.headers.get("connection") for one in pipelined.answers] == [None, "close"]
    assert pipelined.caller.has_closed


def test_a_last_answer_gives_up_requests_that_had_begun(pipelined):
    pipelined.send(request(b"/a") + request(b"/b"))
    first, second = pipelined.host.requests
    first.exchange.keep_alive = False
    first.answer()
    assert second.gone
    assert pipelined.caller.has_closed


def test_a_client_that_closed_its_side_may_wait_for_its_answer(peer):
    peer.send(request())
    assert peer.connection.eof_received()
    peer.host.requests[0].answer()
    assert peer.answers[0].headers["connection"] == "close"
    assert peer.caller.has_closed


def test_a_client_that_closed_its_side_may_be_gone(pipelined):
    pipelined.send(request())
    assert not pipelined.connection.eof_received()
    pipelined.connection.connection_lost(None)
    assert pipelined.host.requests[0].gone


def test_the_name_of_a_head_s_setting_is_told(peer):
    peer.host.limits = replace(LIMITS, head_bytes_setting="max_head_bytes")
    peer.send(request(b"/a", b"", b"X: " + b"a" * 5000))
    assert b"at most (max_head_bytes)" in peer.answers[0].body
    assert peer.host.hits == [ConnectionLimit.HEAD]


@pytest.mark.parametrize(
    "framing",
    [
        pytest.param(b"5;extension=", id="chunk extension"),
        pytest.param(b"0", id="chunk size"),
        pytest.param(b"0\r\nX: ", id="trailer value"),
        pytest.param(b"0\r\n", id="trailer name"),
    ],
)
def test_endless_framing_behind_a_head_is_refused(peer, framing):
    """The parser keeps a trailer until it is whole."""
    peer.send(b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + framing)
    pieces = 0
    while not peer.answers and pieces < 100:
        peer.send(b"0" * 65536)
        pieces += 1
    assert peer.answers[0].status == 431
    assert peer.host.hits == [ConnectionLimit.HEAD]
    assert peer.host.requests[0].gone
    assert pieces < 10


def test_framing_is_bounded_between_pieces_of_a_body(peer):
    """A long body of small chunks has more framing than a head may have bytes."""
    peer.send(b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(20):
        peer.send(b"1;extension=0\r\na\r\n" * 4096)
    peer.send(b"0\r\nX: trailer\r\n\r\n")
    assert peer.host.requests[0].is_whole
    assert len(peer.host.requests[0].received) == 20 * 4096


def test_too_many_fields_are_refused_before_the_head_ends(peer):
    """Small fields take many times their bytes: 5 MB for each connection."""
    peer.send(b"GET /a HTTP/1.1\r\nHost: h\r\n" + b"a:b\r\n" * 200)
    assert peer.answers[0].status == 431
    assert b"128 header fields" in peer.answers[0].body
    assert peer.host.hits == [ConnectionLimit.HEAD]
