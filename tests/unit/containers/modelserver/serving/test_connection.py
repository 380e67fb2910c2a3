"""A connection of the model server, without a socket."""

import asyncio

import pytest

from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.serving.connection import Connection
from sagehen.containers.modelserver.serving.server import RECEIVE_SECONDS, ModelServer
from sagehen.containers.modelserver.serving.streaming import AnswerStream
from support.caller import Caller, answers_in
from support.clock import HandClock

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Peer:
    """A client of a model server whose requests the test answers."""

    def __init__(self):
        self.requests = []
        self.clock = HandClock(1.0)
        self.server = ModelServer(self.requests.append, max_body_bytes=1000, clock=self.clock)
        self.connection = Connection(self.server)
        self.caller = Caller(self.connection)

    def send(self, data):
        self.connection.data_received(data)

    def sweep(self, seconds):
        self.clock.seconds += seconds
        self.server._look_at_clock()
        self.connection.cut_off_if_overdue(self.server.now)

    @property
    def received(self):
        return bytes(self.caller.received)

    @property
    def answers(self):
        return answers_in(self.received)


@pytest.fixture
def peer():
    return Peer()


def post(path, body=b"", *fields, version="1.1"):
    lines = [f"POST {path} HTTP/{version}", "host: x", f"content-length: {len(body)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


EXPECTING = post("/b", b"body", "expect: 100-continue")


def test_a_body_is_asked_for_when_the_earlier_requests_are_answered(peer):
    """Before, the client would take the interim answer for that of an earlier request."""
    peer.send(post("/a") + EXPECTING[:-4])
    assert peer.received == b""
    peer.requests[0].respond(ModelAnswer(200, b"a"))
    assert peer.received.endswith(b"\r\n\r\na" + CONTINUE)
    peer.send(b"body")
    assert peer.requests[1].body == b"body"


def test_a_body_that_is_here_is_not_asked_for(peer):
    peer.send(post("/a") + EXPECTING)
    peer.requests[0].respond(ModelAnswer(200))
    peer.requests[1].respond(ModelAnswer(200))
    assert CONTINUE not in peer.received


def test_another_expectation_asks_for_nothing(peer):
    peer.send(post("/a", b"body", "expect: something-else")[:-4])
    assert peer.received == b""


def test_an_answer_to_head_has_no_body(peer):
    peer.send(b"HEAD /ping HTTP/1.1\r\nhost: x\r\n\r\n")
    peer.requests[0].respond(ModelAnswer(405, b"not that"))
    assert peer.received.endswith(b"\r\n\r\n")
    assert b"Content-Length: 8\r\n" in peer.received


def test_repeated_headers_are_joined(peer):
    peer.send(post("/a", b"", "accept: text/csv", "Accept: application/json"))
    assert peer.requests[0].header(b"accept") == "text/csv,application/json"


def test_answers_have_a_date(peer):
    peer.send(post("/a"))
    peer.requests[0].respond(ModelAnswer(200))
    assert peer.answers[0].headers["date"] == "Thu, 01 Jan 1970 00:00:01 GMT"


def test_http_1_0_may_keep_its_connection(peer):
    peer.send(post("/a", b"", "connection: keep-alive", version="1.0"))
    peer.requests[0].respond(ModelAnswer(200))
    assert peer.answers[0].headers["connection"] == "keep-alive"
    assert not peer.caller.has_ended


@pytest.mark.parametrize(
    ("spoilt", "status"),
    [
        (post("/a", b"", "transfer-encoding: chunked"), 400),
        (post("/a", b"", "transfer-encoding: gzip").replace(b"content-length: 0\r\n", b""), 501),
        (post("/a", b"", "host: y"), 400),
        (post("/a", b"", *(f"x-{number}: y" for number in range(128))), 431),
        (post("/" + "a" * 20_000), 414),
    ],
    ids=["length and coding", "another coding", "two hosts", "many fields", "long target"],
)
def test_ambiguous_and_oversized_heads_are_refused(peer, spoilt, status):
    peer.send(spoilt + post("/smuggled"))
    assert [answer.status for answer in peer.answers] == [status]
    assert peer.answers[0].headers["content-type"] == "application/json"
    assert peer.requests == []


def test_a_body_that_is_too_large_is_refused_in_its_turn(peer):
    peer.send(post("/a") + post("/b", bytes(1001)) + post("/c"))
    assert peer.received == b""
    first, third = peer.requests
    third.respond(ModelAnswer(200, b"c"))
    first.respond(ModelAnswer(200, b"a"))
    assert [answer.status for answer in peer.answers] == [200, 413, 200]


def test_a_client_that_still_sends_a_refused_body_has_time_to_read_its_answer(peer):
    peer.send(post("/a", bytes(2000))[:-1000])
    assert [answer.status for answer in peer.answers] == [413]
    assert peer.caller.has_ended
    for _ in range(3):
        peer.sweep(9)
        peer.send(bytes(100))
        assert not peer.caller.has_closed
    peer.sweep(11)
    assert peer.caller.has_closed


def test_a_body_that_does_not_come_is_given_up(peer):
    peer.send(post("/a", b"body")[:-1])
    peer.sweep(5)
    for _ in range(2):
        peer.sweep(RECEIVE_SECONDS / 2)
        peer.send(b"")
    assert not peer.caller.has_closed
    peer.sweep(1)
    assert peer.caller.has_closed


def test_the_time_in_which_the_server_stood_still_is_not_the_client_s(peer):
    peer.clock.seconds += 10 * RECEIVE_SECONDS  # without a sweep
    peer.send(post("/a", b"body")[:-1])
    peer.sweep(10 * RECEIVE_SECONDS)
    peer.send(b"y")
    assert peer.requests[0].body == b"body"[:-1] + b"y"


def test_a_client_that_waits_for_its_answers_is_not_slow(peer):
    """It is not read from while it has sent more requests than may be unanswered."""
    peer.send(post("/a") * 70 + post("/b", b"body")[:-1])
    assert peer.caller.paused
    for _ in range(3):
        peer.sweep(RECEIVE_SECONDS)
    for request in peer.requests[:]:
        request.respond(ModelAnswer(200))
    assert not peer.caller.paused
    peer.send(b"y")
    assert len(peer.requests) == 71
    assert not peer.caller.has_closed


async def test_draining_sends_answers_that_wait_for_their_turn(peer):
    peer.send(post("/a") + post("/b"))
    draining = asyncio.create_task(peer.server.drain())
    await asyncio.sleep(0)
    first, second = peer.requests
    second.respond(ModelAnswer(200, b"b"))
    first.respond(ModelAnswer(200, b"a"))
    assert [answer.body for answer in peer.answers] == [b"a", b"b"]
    peer.connection.connection_lost(None)
    await draining


def test_a_client_that_closes_its_side_is_gone(peer):
    """A gateway that gives up a request ends its connection: nobody waits any more."""
    peer.send(post("/a"))
    assert not peer.connection.eof_received()
    peer.connection.connection_lost(None)
    assert peer.requests[0].abandoned


def stream_to(peer, version):
    peer.send(post("/a", version=version))
    stream = AnswerStream(b"piece", lambda _: None, lambda: None)
    peer.requests[0].respond(ModelAnswer(200, stream=stream))
    return stream


def test_a_stream_that_breaks_has_no_end(peer):
    stream = stream_to(peer, "1.1")
    stream.end(whole=False)
    assert peer.received.endswith(b"5\r\npiece\r\n")
    assert peer.caller.has_closed


def test_a_stream_of_http_1_0_that_breaks_is_reset(peer, monkeypatch):
    """An orderly end would look like that of the answer."""
    aborted = []
    monkeypatch.setattr(Caller, "abort", lambda _: aborted.append(True))
    stream_to(peer, "1.0").end(whole=False)
    assert aborted == [True]


def test_a_stream_waits_while_the_client_does_not_read(peer):
    stream = stream_to(peer, "1.1")
    peer.connection.pause_writing()
    stream.add(b"later")
    assert not peer.received.endswith(b"later\r\n")
    peer.connection.resume_writing()
    assert peer.received.endswith(b"5\r\nlater\r\n")
    stream.end(whole=True)
    assert peer.received.endswith(b"0\r\n\r\n")
    assert not peer.caller.has_ended
