"""The answer while control is down, in the form of the service that the client calls."""

import pytest

from sagehen.gateway.control_unavailable import ControlUnavailable, answer_control_unavailable
from sagehen.http1.exchange import Exchange
from support.exchanges import make_exchange


class Channel:
    date_line = b""
    draining = False

    def __init__(self) -> None:
        self.written = b""
        self.released = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def finished(self, exchange: Exchange) -> None:
        exchange.done = True

    def release(self) -> None:
        self.released += 1


@pytest.fixture
def channel() -> Channel:
    return Channel()


def answer(channel: Channel, target: bytes, **headers: bytes) -> bytes:
    exchange = make_exchange(channel, b"the-id")
    exchange.method, exchange.target, exchange.is_whole = b"POST", target, True
    exchange.headers = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    answer_control_unavailable(exchange)
    assert exchange.done
    assert channel.released == 1, "reading goes on"
    assert channel.written.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1\r\n" in channel.written
    return channel.written


FORM = b"application/x-www-form-urlencoded"
CASES = {
    "json": (b"/", {"X_Amz_Target": b"SageMaker.ListModels"}, b'{"__type":"ServiceUnavailable"'),
    "runtime": (b"/endpoints/a/async-invocations", {}, b'{"Message":'),
    "query": (b"/", {"Content_Type": FORM}, b"<ErrorResponse><Error><Type>Receiver</Type>"),
    "s3": (b"/bucket/key", {}, b"<Error><Code>ServiceUnavailable</Code>"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_service_has_its_form(channel, case):
    target, headers, body = CASES[case]
    assert body in answer(channel, target, **headers)


def test_s3_names_the_request_in_a_header_of_its_own(channel):
    assert b"x-amz-request-id: the-id" in answer(channel, b"/bucket/key")


def test_the_handler_does_not_wait_for_a_body(channel):
    exchange = make_exchange(channel, b"id")
    exchange.target, exchange.fields = b"/bucket/key", {"content-length": "10"}
    ControlUnavailable(exchange, "It is full < here.").begin()
    assert exchange.closes, "the rest of the body would be taken for a request"
    assert b"It is full &lt; here." in channel.written
