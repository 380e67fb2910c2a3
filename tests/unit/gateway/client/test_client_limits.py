"""What a client may take of the gateway: sizes, times, connections."""

import asyncio
import socket
from dataclasses import replace

import pytest


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X-A: 1\r\n" * 129 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX-A: " + b"a" * 400_000, 431),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"GET /" + b"a" * 16_400 + b" HTTP/1.1\r\n\r\n", 414),
    ],
)
async def test_a_head_has_bounds(served, head, status, limits_met):
    client = await served.connect()
    client.send(head)
    assert (await client.answer()).status == status
    assert await client.ended()
    assert limits_met() == ({} if status == 501 else {"head": 1})


async def test_a_dripping_head_is_cut_off(served):
    client = await served.connect()
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\nX-A: ")
    await client.writer.drain()
    cut_off = asyncio.create_task(client.answer())
    while not cut_off.done():
        served.clock.advance(5)
        client.send(b"a")
        await asyncio.sleep(0.001)
    assert cut_off.result().status == 408


async def test_a_stalling_body_is_cut_off(served):
    client = await served.connect()
    client.send(served.signed(b"1,2,3")[:-1])
    cut_off = asyncio.create_task(client.ended())
    while not cut_off.done():
        served.clock.advance(5)
        await asyncio.sleep(0.001)
    assert cut_off.result()


async def test_an_idle_connection_is_closed(served):
    client = await served.connect()
    client.send(served.signed())
    assert (await client.answer()).status == 200
    closed = asyncio.create_task(client.ended())
    while not closed.done():
        served.clock.advance(50)
        await asyncio.sleep(0.001)
    assert closed.result()


@pytest.mark.parametrize(
    ("setting", "limit", "begun"),
    [
        ("head_timeout_seconds", "head_timeout", b"GET / HTTP/1.1\r\nHost: h\r\nX-A: "),
        (
            "stall_timeout_seconds",
            "stall",
            b"PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel",
        ),
        ("idle_timeout_seconds", "idle", b""),
    ],
    ids=["head", "stall", "idle"],
)
async def test_a_time_is_what_its_setting_says(
    house, eventually, setting, limit, begun, limits_met
):
    await house.control(lambda asked: (200, {}, b""))
    await house.start(**{setting: 7})
    server = house.gateway._server
    client = await house.connect()
    client.send(begun)
    await eventually(lambda: server.connections)
    (connection,) = server.connections
    # Held, it waits for control and not for the client.
    await eventually(lambda: not begun or (connection._receiving and not connection._paused_for))
    house.clock.advance(6)
    await eventually(lambda: server.now == house.clock.elapsed)
    assert not connection._discarding
    house.clock.advance(2)
    await eventually(lambda: connection._discarding)
    assert limits_met() == {limit: 1}


async def test_control_that_says_nothing_is_not_waited_for_for_ever(house, eventually, limits_met):
    async def never(head, reader, writer):
        await reader.read()

    await house.raw(never, house.home.control_socket)
    await house.start()
    client = await house.connect()
    client.send(b"GET /bucket/key HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: any(one._unanswered for one in house.gateway._server.connections))
    house.clock.advance(901)
    assert await client.ended()
    assert limits_met() == {"answer_stall": 1}


async def test_who_does_not_take_its_answer_is_cut_off(house, variant, eventually, limits_met):
    answer = bytes(8_000_000)
    house.route(variant(await house.fake(lambda asked: (200, {}, answer))))
    await house.start()
    client = await house.connect()
    client.writer.transport.pause_reading()
    client.send(house.signed())
    (connection,) = house.gateway._server.connections
    await eventually(lambda: connection._blocked_since is not None)
    house.clock.advance(121)
    await eventually(lambda: not house.gateway._server.connections)
    assert limits_met() == {"stall": 1}


async def test_who_does_not_take_the_last_bytes_before_the_end_is_cut_off(
    house, variant, eventually, limits_met
):
    """They are fewer than make us pause: only that the connection does not end tells of them."""
    answer = bytes(200_000)
    house.route(variant(await house.fake(lambda asked: (200, {}, answer))))
    await house.start()
    host, _, port = house.host.partition(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        await eventually(lambda: house.gateway._server.connections)
        (connection,) = house.gateway._server.connections
        ours = connection._transport.get_extra_info("socket")
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client.sendall(house.signed())
        await eventually(lambda: connection._transport.get_write_buffer_size() > 0)
        await eventually(lambda: not connection._unanswered)
        assert connection._blocked_since is None
        house.clock.advance(301)
        await eventually(lambda: connection._discarding)
        house.clock.advance(121)
        await eventually(lambda: not house.gateway._server.connections)
    assert limits_met() == {"idle": 1, "stall": 1}


@pytest.fixture
def dripping(house, eventually):
    """`await dripping(n)`: clients that have each begun a request."""

    async def make(count):
        clients = [await house.connect() for _ in range(count)]
        for client in clients:
            client.send(b"GET /b/k HTTP/1.1\r\nHost: ")
        begun = house.gateway._server.connections
        await eventually(lambda: sum(one._head_since is not None for one in begun) == count)
        return clients

    return make


REFUSED = b"GET /_sagehen/internal/x HTTP/1.1\r\nHost: h\r\n\r\n"
HEALTH = b"GET /_sagehen/health HTTP/1.1\r\nHost: h\r\n\r\n"


async def test_more_clients_than_may_work_at_once_are_refused(
    house, eventually, limits_met, dripping
):
    await house.start(max_connections=1)
    (first,) = await dripping(1)
    second = await house.connect()
    second.send(REFUSED)
    got = await second.answer()
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert b"max_connections" in got.body
    assert await second.ended()
    first.close()
    await eventually(lambda: not house.gateway._server.connections)
    third = await house.connect()
    third.send(REFUSED)
    assert (await third.answer()).status == 404
    assert limits_met() == {"connections": 1}


async def test_the_longest_idle_makes_room(house, eventually, limits_met, dripping):
    await house.start(max_connections=3)
    (working,) = await dripping(1)
    idle = [await house.connect() for _ in range(2)]
    for client in (idle[1], idle[0]):
        client.send(REFUSED)
        assert (await client.answer()).status == 404
    fresh = await house.connect()
    fresh.send(REFUSED)
    assert (await fresh.answer()).status == 503, "Both may be about to ask."
    house.clock.advance(2)
    new = await house.connect()
    new.send(REFUSED)
    assert (await new.answer()).status == 404
    assert await idle[1].ended()
    for client in (idle[0], new):
        client.send(REFUSED)
        assert (await client.answer()).status == 404
    working.send(b"h\r\n\r\n")
    assert (await working.answer()).status == 503, "There is no control."
    assert limits_met() == {"connections": 1, "evicted": 1}


@pytest.fixture
async def unread(house, variant, eventually):
    """A client that does not read its answer: the end of that waits in our buffer, where nothing is
    left to answer."""
    house.route(variant(await house.fake(lambda asked: (200, {}, bytes(200_000)))))
    await house.start(max_connections=2, stall_timeout_seconds=60)
    client = await house.connect()
    client.writer.transport.pause_reading()
    theirs = client.writer.get_extra_info("socket")
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await eventually(lambda: house.gateway._server.connections)
    (connection,) = house.gateway._server.connections
    ours = connection._transport.get_extra_info("socket")
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client.send(house.signed())
    await eventually(lambda: connection._transport.get_write_buffer_size() > 0)
    await eventually(lambda: not connection._unanswered)
    return client


async def test_who_still_reads_its_answer_is_not_idle(house, unread, limits_met):
    idle = await house.connect()
    idle.send(REFUSED)
    assert (await idle.answer()).status == 404
    house.clock.advance(2)
    new = await house.connect()
    new.send(REFUSED)
    assert (await new.answer()).status == 404
    unread.writer.transport.resume_reading()
    got = await unread.answer()
    assert (got.status, len(got.body)) == (200, 200_000)
    assert await idle.ended()
    assert limits_met() == {"evicted": 1}


async def test_who_does_not_read_for_long_makes_room(house, unread, dripping, limits_met):
    await dripping(1)
    for seconds, status in ((2, 503), (58, 404)):
        house.clock.advance(seconds)
        new = await house.connect()
        new.send(REFUSED)
        assert (await new.answer()).status == status
    assert limits_met() == {"connections": 1, "evicted": 1}


async def test_clients_that_never_ask_shut_nobody_out(house, eventually, limits_met):
    await house.start(max_connections=4)
    for _ in range(40):
        await house.connect()
    await eventually(lambda: limits_met() == {"connections": 36})
    for evicted in (1, 2):
        house.clock.advance(2)
        asking = await house.connect()
        asking.send(REFUSED)
        assert (await asking.answer()).status == 404
        assert limits_met() == {"connections": 36, "evicted": evicted}
    assert len(house.gateway._server.connections) == 4 + 8


async def test_health_is_told_when_all_others_work(house, eventually, dripping):
    await house.control(lambda asked: (200, {}, asked.path.encode()))
    await house.start(max_connections=2)
    await dripping(2)
    for _ in range(30):
        await house.connect()  # They ask nothing, and take the reserve.
    asking = await house.connect()
    asking.send(HEALTH)
    got = await asking.answer()
    assert (got.status, got.body) == (200, b"/_sagehen/health")
    assert await asking.ended(), "Its place is for the next who asks."
    await eventually(lambda: len(house.gateway._server.connections) < 2 + 8 + 1)


async def test_a_body_that_nobody_reads_makes_room_too(house, refused_upload, eventually):
    house.gateway._server.limits = replace(house.gateway._server.limits, connections=1)
    house.clock.advance(2)
    asking = await house.connect()
    asking.send(REFUSED)
    assert (await asking.answer()).status == 404


@pytest.mark.parametrize(("size", "status"), [(3900, 404), (4200, 431)])
async def test_a_head_has_the_bytes_that_are_set(house, size, status, limits_met):
    await house.start(max_head_bytes=4096)
    client = await house.connect()
    client.send(
        b"GET /_sagehen/internal/x HTTP/1.1\r\nHost: h\r\nX-A: " + b"a" * size + b"\r\n\r\n"
    )
    assert (await client.answer()).status == status
    assert limits_met() == ({"head": 1} if status == 431 else {})


async def test_a_body_that_comes_with_its_head_is_no_part_of_it(house, variant, echo):
    house.route(variant(await house.fake(echo)))
    await house.start(max_head_bytes=4096)
    client = await house.connect()
    client.send(house.signed(b"x" * 5000))
    assert (await client.answer()).status == 200


async def test_too_large_a_body_is_refused_before_it_is_sent(house, variant, echo, limits_met):
    house.route(variant(await house.fake(echo)))
    await house.start(max_invocation_body_bytes=10)
    client = await house.connect()
    head, _, _ = house.signed(b"12345678901").partition(b"\r\n\r\n")
    client.send(head + b"\r\n\r\n")
    got = await client.answer()
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert got.json["Message"] == (
        f"Request {got.headers['x-amzn-requestid']} has oversize body. At most 10 bytes are taken "
        "(setting max_invocation_body_bytes); an asynchronous endpoint takes larger inputs from S3."
    )
    assert await client.ended()
    assert limits_met() == {"body_size": 1}


async def test_bodies_that_come_together_are_bounded(house, variant, echo, limits_met, eventually):
    house.route(variant(await house.fake(echo)))
    await house.start(max_held_body_bytes=100)
    first, second = await house.connect(), await house.connect()
    parts = [house.signed(b"x" * 80).partition(b"\r\n\r\n") for _ in range(2)]
    for client, (head, end, body) in zip((first, second), parts, strict=True):
        client.send(head + end + body[:10])
    memory = house.gateway._context.body_memory
    await eventually(lambda: memory.bytes == 20)
    first.send(parts[0][2][10:79])
    await eventually(lambda: memory.bytes == 89)
    second.send(parts[1][2][10:79])
    got = await second.answer()
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert await second.ended()
    first.send(parts[0][2][79:])
    assert (await first.answer()).status == 200
    assert limits_met() == {"bodies": 1}


async def test_too_large_a_chunked_body_is_refused_as_it_comes(house, variant, echo, limits_met):
    house.route(variant(await house.fake(echo)))
    await house.start(max_invocation_body_bytes=10)
    client = await house.connect()
    head, _, _ = house.signed(b"1").partition(b"\r\n\r\n")
    client.send(head.replace(b"Content-Length: 1", b"Transfer-Encoding: chunked"))
    client.send(b"\r\n\r\nb\r\n12345678901\r\n")
    got = await client.answer()
    assert "has oversize body. At most 10 bytes are taken" in got.json["Message"]
    assert limits_met() == {"body_size": 1}


UNSIGNED = {
    "nobody": b"",
    "unknown key": b"Authorization: AWS4-HMAC-SHA256 Credential=AKSHOTHER/20261101/us-east-1/"
    b"sagemaker/aws4_request, SignedHeaders=host, Signature=00\r\nX-Amz-Date: 20261101T093000Z\r\n",
    "malformed": b"Authorization: AWS4-HMAC-SHA256 Credential=x\r\n",
}


@pytest.mark.parametrize("action", [b"invocations", b"invocations-response-stream"])
@pytest.mark.parametrize("framing", [b"Content-Length: 25000000", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("who", UNSIGNED.values(), ids=UNSIGNED)
async def test_no_large_body_is_kept_of_whoever_has_no_key(house, who, framing, action):
    await house.start()
    client = await house.connect()
    client.send(b"POST /endpoints/price/%b HTTP/1.1\r\nHost: h\r\n" % action)
    client.send(who + framing + b"\r\nExpect: 100-continue\r\n\r\n")
    got = await client.head()
    assert got[0] in (400, 403), "And no 100 comes before."
    client.send(b"186a0\r\n" + bytes(100_000))
    await client.writer.drain()
    assert house.gateway._context.body_memory.bytes == 0


async def test_a_large_body_that_is_signed_is_kept(house, variant, echo):
    house.route(variant(await house.fake(echo)))
    await house.start()
    assert (await house.invoke(b"1" * 3_000_000)).status == 200
    wrong = await house.invoke(b"1" * 3_000_000, secret="another")
    assert wrong.headers["x-amzn-errortype"] == "InvalidSignatureException"


async def test_a_client_that_still_sends_gets_to_read_its_answer(house, variant, echo):
    house.route(variant(await house.fake(echo)))
    await house.start(max_invocation_body_bytes=10)
    client = await house.connect()
    client.send(house.signed(bytes(3_000_000)))
    await client.writer.drain()
    assert (await client.answer()).status == 400


@pytest.fixture
async def refused_upload(house, eventually):
    """A client that has been answered 403 and still sends its upload of a gigabyte."""

    async def control(head, reader, writer):
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        await reader.read()

    await house.raw(control, house.home.control_socket)
    await house.start()
    client = await house.connect()
    client.send(b"PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\nabc")
    await eventually(
        lambda: any(one._lingering_since is not None for one in house.gateway._server.connections)
    )
    return client


@pytest.fixture
def send_later(house, refused_upload, eventually):
    """`await send_later()`: nine seconds pass, and the client sends a little more."""

    async def send():
        server = house.gateway._server
        (connection,) = server.connections
        then = server.now + 9
        house.clock.advance(9)
        await eventually(lambda: server.now >= then)
        refused_upload.send(bytes(1000))
        await eventually(lambda: connection._active == server.now or not server.connections)

    return send


async def test_who_still_sends_is_left_to_read_its_answer(refused_upload, send_later):
    for _ in range(10):
        await send_later()
    assert (await refused_upload.answer()).body == b"no"


async def test_who_sends_no_more_of_a_refused_body_is_cut_off(house, refused_upload, eventually):
    house.clock.advance(11)
    await eventually(lambda: not house.gateway._server.connections)


async def test_who_sends_a_refused_body_for_ever_is_cut_off(house, send_later):
    began = house.clock.elapsed
    while house.gateway._server.connections:
        await send_later()
    assert 120 < house.clock.elapsed - began < 150
