"""Which heads are refused, by status, and which are known again."""

import asyncio
from dataclasses import replace

import pytest

from sagehen.http1.exchange import Exchange
from sagehen.http1.fields import joined_fields
from sagehen.http1.limits import MAX_PIECE_BYTES
from sagehen.http1.request_head import (
    MAX_HEADERS,
    MAX_HEADS_SEEN,
    MAX_KNOWN_HEADS,
    MAX_TARGET_BYTES,
    KnownHeads,
    ambiguity,
    endless,
    excess,
)
from support.caller import Caller
from support.http1 import LIMITS, Connection, Host

HOST = (b"Host", b"h")


def exchange_of(*headers: tuple[bytes, bytes], target: bytes = b"/a", method: bytes = b"POST"):
    exchange = Exchange(Connection(Host()))
    exchange.method, exchange.target, exchange.headers = method, target, list(headers)
    exchange.fields = joined_fields(headers)
    return exchange


@pytest.mark.parametrize(
    ("exchange", "version", "upgrades", "status"),
    [
        (exchange_of(HOST), "1.1", False, None),
        (exchange_of(HOST, (b"Transfer-Encoding", b" Chunked ")), "1.1", False, None),
        (exchange_of(), "1.0", False, None),
        (exchange_of((b"Host", b"a,b")), "1.1", False, None),
        (exchange_of(HOST), "1.1", True, None),
        (exchange_of(), "1.1", False, 400),
        (exchange_of(HOST, HOST), "1.1", False, 400),
        (exchange_of(HOST, target=b"*"), "1.1", False, 400),
        (exchange_of(HOST, target=b"http://h/a"), "1.1", False, 400),
        (exchange_of(HOST, target=b"/a#b"), "1.1", False, 400),
        (exchange_of(HOST, (b"Transfer-Encoding", b"gzip")), "1.1", False, 501),
        (exchange_of(HOST, (b"Transfer-Encoding", b"chunked")), "1.0", False, 400),
        (exchange_of(HOST), "2.0", False, 505),
        (exchange_of(HOST, (b"Content-Length", b"1")), "1.1", True, 400),
        (exchange_of(HOST, method=b"CONNECT"), "1.1", True, 501),
    ],
)
def test_what_another_server_might_read_in_another_way_is_refused(
    exchange, version, upgrades, status
):
    fault = ambiguity(exchange, version, upgrades)
    assert (fault and fault.status) == status


@pytest.mark.parametrize(
    ("exchange", "status"),
    [
        (exchange_of(*[HOST] * MAX_HEADERS), None),
        (exchange_of(*[HOST] * (MAX_HEADERS + 1)), 431),
        (exchange_of(target=b"/" * MAX_TARGET_BYTES), None),
        (exchange_of(target=b"/" * (MAX_TARGET_BYTES + 1)), 414),
        (exchange_of((b"X", b"y" * 40_000)), 431),
    ],
)
def test_sizes_have_bounds(exchange, status):
    limits = replace(LIMITS, head_bytes=32 * 1024)
    fault = excess(exchange, 50_000, limits)
    assert (fault and fault.status) == status


def test_a_body_that_came_with_its_head_is_no_part_of_it():
    assert excess(exchange_of(HOST), 10 * LIMITS.head_bytes, LIMITS) is None


ENDLESS_BYTES = LIMITS.head_bytes + MAX_PIECE_BYTES + 1


@pytest.mark.parametrize(
    ("exchange", "in_head", "received_bytes", "status"),
    [
        (exchange_of(), True, ENDLESS_BYTES, 431),
        (exchange_of(), True, ENDLESS_BYTES - 1, None),
        (exchange_of(target=b"/" * (MAX_TARGET_BYTES + 1)), True, ENDLESS_BYTES, 414),
        (exchange_of(*[HOST] * (MAX_HEADERS + 1)), True, 1000, 431),
        (exchange_of(*[HOST] * MAX_HEADERS), True, 1000, None),
        (exchange_of(HOST), False, ENDLESS_BYTES, 431),
        (exchange_of(HOST), False, ENDLESS_BYTES - 1, None),
    ],
)
def test_what_does_not_end_is_refused(exchange, in_head, received_bytes, status):
    fault = endless(exchange, in_head, received_bytes, LIMITS)
    assert (fault and fault.status) == status


class ParserSpy:
    """A connection's parser, which counts what it gets."""

    def __init__(self, parser):
        self._parser = parser
        self.pieces = 0

    def __getattr__(self, name):
        return getattr(self._parser, name)

    def feed_data(self, piece):
        self.pieces += 1
        self._parser.feed_data(piece)


class Client:
    """Has a connection to a server that knows heads, and answers at once."""

    def __init__(self):
        self.host = Host(answers_at_once=True)
        self.connection = Connection(self.host, KnownHeads())
        self.caller = Caller(self.connection)
        self.parser = self.connection._parser = ParserSpy(self.connection._parser)

    def send(self, piece):
        """Returns whether it was parsed."""
        before = self.parser.pieces
        self.connection.data_received(piece)
        return self.parser.pieces > before

    @property
    def bodies(self):
        return [request.received for request in self.host.requests]


@pytest.fixture
def client():
    return Client()


def post(body, *lines):
    head = ["POST /a HTTP/1.1", "Host: h", f"Content-Length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


def test_a_head_is_parsed_twice_and_known_from_then_on(client):
    assert [client.send(post(body)) for body in (b"one", b"two", b"six", b"ten")] == [
        True,
        True,
        False,
        False,
    ]
    assert client.bodies == [b"one", b"two", b"six", b"ten"]
    first, last = client.host.requests[0].exchange, client.host.requests[-1].exchange
    for name in ("method", "target", "headers", "fields", "keep_alive", "legacy", "is_whole"):
        assert getattr(first, name) == getattr(last, name)


def test_a_body_that_looks_like_a_known_request_is_none(client):
    inner = post(b"one")
    for _ in range(3):
        client.send(inner)
    outer = post(inner)
    client.send(outer[: -len(inner)])
    client.send(inner)
    assert client.bodies == [b"one"] * 3 + [inner]


def test_a_known_head_within_another_is_a_part_of_it(client):
    for _ in range(3):
        client.send(post(b"one"))
    client.send(b"POST /b HTTP/1.1\r\nX: ")
    client.send(post(b"one"))
    assert client.host.requests[-1].exchange.target == b"/b"


@pytest.mark.parametrize("cut", [-1, -3, -4, 5])
def test_a_known_head_whose_body_is_not_all_there_is_parsed(client, cut):
    request = post(b"one")
    for _ in range(3):
        client.send(request)
    assert client.send(request[:cut])
    assert client.send(request[cut:])
    assert client.send(request + request)
    assert client.bodies == [b"one"] * 6


@pytest.mark.parametrize(
    "request_",
    [
        post(b"one", "Expect: 100-continue"),
        post(b"one", "X: " + "y" * 1024),
        b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
        b"\r\n" + post(b"one"),
    ],
)
def test_heads_that_are_not_plain_are_always_parsed(client, request_):
    assert [client.send(request_) for _ in range(4)] == [True] * 4
    head, end, body = request_.partition(b"\r\n\r\n")
    client.send(head + end)
    client.send(body)
    assert len(client.host.requests) == 5
    assert len(set(client.bodies)) == 1


def test_nothing_is_received_after_the_last_request(client):
    for _ in range(3):
        client.send(post(b"one"))
    client.send(post(b"two", "Connection: close"))
    client.send(post(b"one"))
    assert client.bodies == [b"one"] * 3 + [b"two"]


async def test_a_known_head_behind_an_unanswered_last_request_is_no_request(client):
    for _ in range(3):
        client.send(post(b"one"))
    client.host.answers_at_once = False
    client.send(post(b"two", "Connection: close"))
    assert client.send(post(b"one"))
    client.host.requests[-1].answer()
    await asyncio.sleep(0)
    assert client.bodies == [b"one"] * 3 + [b"two"]
    assert client.caller.has_closed


def test_known_heads_have_bounds():
    known_heads, exchange = KnownHeads(), exchange_of(HOST)

    def see(number):
        head = b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number
        if known_heads.is_worth_learning(head):
            known_heads.learn(head, exchange)
        return known_heads.find(head) is not None

    for _ in range(2):
        known = [see(number) for number in range(MAX_HEADS_SEEN)]
    assert known == [number < MAX_KNOWN_HEADS for number in range(MAX_HEADS_SEEN)]
    # All are forgotten when others come.
    assert not see(MAX_HEADS_SEEN)
    assert see(MAX_HEADS_SEEN)
    assert not see(0)
