"""What is not an invocation goes to control as it is, and comes back as it is."""

import asyncio
from types import SimpleNamespace

import pytest

from sagehen.gateway.control_proxy import ControlProxy
from sagehen.gateway.control_unavailable import ControlUnavailable
from sagehen.gateway.dispatch import RequestDispatcher
from sagehen.gateway.leader_proxy import Leader
from sagehen.http1.pool import Pool
from support.clock import HandClock


@pytest.mark.parametrize(
    ("is_ready", "handler"), [(False, ControlUnavailable), (True, ControlProxy)]
)
def test_a_gateway_that_knows_no_endpoints_yet_is_not_healthy(is_ready, handler):
    """Whatever control says, which for some gateways of a cluster is on another machine."""
    pool, leader = Pool("unix:/nowhere", HandClock()), Leader(HandClock())
    dispatcher = RequestDispatcher(None, pool, leader, lambda: is_ready)

    def handler_of(target):
        return type(dispatcher(SimpleNamespace(target=target, method=b"GET", headers=[])))

    assert handler_of(b"/_sagehen/health?x") is handler
    assert handler_of(b"/_sagehen/status") is ControlProxy


async def ask(house, request, head_only=False):
    client = await house.connect()
    client.send(request)
    got = await client.answer(head_only)
    client.close()
    return got


async def test_a_request_is_relayed_as_it_is(house):
    control = await house.control(
        lambda asked: (200, {"Content-Type": "application/xml", "x-amz-id-2": "Ab"}, b"<a/>")
    )
    await house.start()
    got = await ask(
        house,
        b"PUT /bucket/a%20key?partNumber=1&x HTTP/1.1\r\nHost: h:1\r\nX-Amz-Meta-A: b, c\r\n"
        b"X-Amz-Meta-A: d\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc",
    )
    (asked,) = control.asked
    assert (asked.method, asked.path) == ("PUT", "/bucket/a%20key?partNumber=1&x")
    assert asked.body == b"abc"
    assert asked.headers == [
        ("Host", "h:1"),
        ("X-Amz-Meta-A", "b, c"),
        ("X-Amz-Meta-A", "d"),
        ("Content-Length", "3"),
    ]
    assert (got.status, got.body) == (200, b"<a/>")
    assert got.headers["x-amz-id-2"] == "Ab"
    assert got.headers["x-amzn-requestid"]
    assert got.headers["date"]


@pytest.mark.parametrize("given", [[], [("Via", "1.1 a")]])
async def test_control_hears_of_http_1_0(house, given):
    """As nginx relays with no more than `proxy_pass`, and says nothing of itself."""
    control = await house.control(lambda asked: (200, {}, b""))
    await house.start()
    lines = "".join(f"{name}: {value}\r\n" for name, value in given).encode()
    await ask(house, b"GET /_sagehen/metrics HTTP/1.0\r\nHost: h:1\r\n" + lines + b"\r\n")
    (asked,) = control.asked
    assert asked.headers == [("Host", "h:1"), *given, ("Via", "1.0 sagehen")]


async def test_a_server_that_starts_says_so_and_one_whose_control_is_gone_does_not(house):
    await house.start()
    request = b"GET /_sagehen/health HTTP/1.1\r\nHost: h\r\n\r\n"
    got = await ask(house, request)
    assert (got.status, b"This server is starting" in got.body) == (503, True)
    assert b"started again" not in got.body
    control = await house.control(lambda asked: (200, {}, b""))
    assert (await ask(house, request)).status == 200
    house.home.control_socket.unlink()
    control.hang_up()
    got = await ask(house, request)
    assert (got.status, b"it is started again by itself" in got.body) == (503, True)


async def test_controls_own_request_id_is_kept(house):
    await house.control(lambda asked: (200, {"x-amzn-RequestId": "mine"}, b""))
    await house.start()
    got = await ask(house, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert got.headers["x-amzn-requestid"] == "mine"


async def test_s3_has_one_request_id(house):
    await house.control(lambda asked: (200, {"x-amz-request-id": "mine"}, b""))
    await house.start()
    got = await ask(house, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert got.headers["x-amz-request-id"] == "mine"
    assert "x-amzn-requestid" not in got.headers


async def test_s3_has_one_request_id_without_control_too(house):
    await house.start()
    got = await ask(house, b"GET /bucket HTTP/1.1\r\nHost: h\r\n\r\n")
    assert f"<RequestId>{got.headers['x-amz-request-id']}</RequestId>".encode() in got.body
    assert "x-amzn-requestid" not in got.headers


async def test_connections_are_kept_on_both_sides(house):
    control = await house.control(lambda asked: (200, {}, asked.path.encode()))
    await house.start()
    client = await house.connect()
    for number in range(20):
        path = b"/%d" % number
        client.send(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % path)
        assert (await client.answer()).body == path
    assert len(control.asked) == 20
    assert control.connections < 10, "Some may be the counters', which go their own way."


async def test_a_chunked_body_stays_chunked(house):
    control = await house.control(lambda asked: (200, {}, b""))
    await house.start()
    await ask(
        house,
        b"PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    )
    assert control.asked[0].body == b"abcde"
    assert "content-length" not in control.asked[0].fields


async def test_an_answer_in_chunks_stays_in_chunks(house):
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"
    await house.control(lambda asked: raw)
    await house.start()
    got = await ask(house, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (got.headers["transfer-encoding"], got.body) == ("chunked", b"abcd")
    got = await ask(house, b"GET / HTTP/1.0\r\n\r\n")
    assert (got.headers["connection"], got.body) == ("close", b"abcd")


@pytest.mark.parametrize(
    ("method", "raw"),
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 4711\r\n\r\n"),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"),
        (b"DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
    ],
)
async def test_an_answer_without_a_body_ends_with_its_head(house, method, raw):
    await house.control(lambda asked: raw)
    await house.start()
    client = await house.connect()
    for _ in range(2):
        client.send(b"%b / HTTP/1.1\r\nHost: h\r\n\r\n" % method)
        got = await client.answer(head_only=True)
        assert got.headers.get("content-length") == ("4711" if method == b"HEAD" else None)
        assert "transfer-encoding" not in got.headers


async def test_an_interim_answer_is_passed_on(house):
    async def control(head, reader, writer):
        assert b"Expect: 100-continue" in head
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(3)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + body)
        await reader.read()

    await house.raw(control, house.home.control_socket)
    await house.start()
    client = await house.connect()
    client.send(b"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert (await client.head())[0] == 100
    client.send(b"abc")
    assert (await client.answer()).body == b"abc"


async def test_an_early_refusal_ends_the_connection(house):
    async def control(head, reader, writer):
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        await reader.read()

    await house.raw(control, house.home.control_socket)
    await house.start()
    client = await house.connect()
    client.send(b"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    got = await client.answer()
    assert (got.status, got.headers["connection"], got.body) == (403, "close", b"no")
    assert await client.ended()


@pytest.mark.parametrize(
    ("request_head", "expected"),
    [
        (b"POST / HTTP/1.1\r\nX-Amz-Target: SageMaker.X\r\n", b'"__type":"ServiceUnavailable"'),
        (b"GET /bucket HTTP/1.1\r\n", b"<Error><Code>ServiceUnavailable</Code>"),
        (
            b"POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n",
            b"<ErrorResponse><Error>",
        ),
        (b"GET /_sagehen/health HTTP/1.1\r\n", b'"Message":'),
    ],
)
async def test_without_control_the_answer_has_the_form_of_the_protocol(
    house, request_head, expected
):
    await house.start()
    got = await ask(house, request_head + b"Host: h\r\nContent-Length: 0\r\n\r\n")
    assert (got.status, got.headers["retry-after"]) == (503, "1")
    assert expected in got.body


async def test_without_control_a_head_request_gets_a_head(house):
    await house.start()
    client = await house.connect()
    for _ in range(2):
        client.send(b"HEAD /bucket HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await client.answer(head_only=True)).status == 503


async def test_control_that_ends_before_it_answers_is_told_of(house):
    await house.control(lambda asked: None)
    await house.start()
    got = await ask(house, b"DELETE /bucket HTTP/1.1\r\nHost: h\r\n\r\n")
    assert got.status == 503
    assert b"may or may not have been carried out" in got.body


def breaks_off(length, control):
    def half(asked):
        asyncio.get_running_loop().call_later(0.002, lambda: control[0].hang_up())
        return b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\nabc" % length

    return half


async def test_of_a_small_answer_that_breaks_off_nothing_is_seen(house):
    control = []
    control.append(await house.control(breaks_off(9, control)))
    await house.start()
    got = await ask(house, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    # boto3 would make a success of a head without its body.
    assert got.status == 503
    assert b"may or may not have been carried out" in got.body


async def test_an_answer_that_breaks_off_does_not_look_whole(house):
    control = []
    control.append(await house.control(breaks_off(100_000, control)))
    await house.start()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await ask(house, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")


async def test_a_body_flows_both_ways_without_being_kept(house, comes_to_rest):
    total, part = 64_000_000, bytes(1_000_000)
    received = 0

    async def control(head, reader, writer):
        nonlocal received
        await gate.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while received < total:
            data = await reader.read(1_000_000)
            received += len(data)
            writer.write(data)
            await writer.drain()

    gate = asyncio.Event()
    await house.raw(control, house.home.control_socket)
    await house.start()
    client = await house.connect()
    client.send(b"PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % total)
    sent = 0

    async def send():
        nonlocal sent
        while sent < total:
            client.send(part)
            await client.writer.drain()
            sent += len(part)

    sending = asyncio.create_task(send())
    assert (
        await comes_to_rest(lambda: sent) < total / 2
    )  # Control does not read, so the gateway does not either.
    gate.set()
    status, _ = await client.head()
    assert status == 200
    got = 0
    while got < total:
        got += len(await client.reader.read(1_000_000))
    await sending
    assert received == total
