"""HTTP/1.1 as good and bad clients speak it."""

import asyncio

import pytest


async def test_a_connection_is_kept_between_requests(served):
    client = await served.connect()
    for body in (b"1", b"2", b""):
        client.send(served.signed(body))
        assert (await client.answer()).body == body
    assert served.container.connections == 1


async def test_pipelined_requests_are_answered_in_order(house, variant):
    release = asyncio.Event()

    async def slow_first(asked):
        if asked.body == b"first":
            await release.wait()
        return 200, {}, asked.body

    house.route(variant(await house.fake(slow_first)))
    await house.start()
    client = await house.connect()
    client.send(house.signed(b"first") + house.signed(b"second") + b"GET /_sagehen/internal/x ")
    client.send(b"HTTP/1.1\r\nHost: h\r\n\r\n" + house.signed(b"last"))
    release.set()
    answers = [await client.answer() for _ in range(4)]
    assert [got.status for got in answers] == [200, 200, 404, 200]
    assert [answers[0].body, answers[1].body, answers[3].body] == [b"first", b"second", b"last"]


async def test_many_pipelined_refusals_need_no_deep_stack(served):
    client = await served.connect()
    client.send(b"GET /_sagehen/internal/x HTTP/1.1\r\nHost: h\r\n\r\n" * 3000)
    for _ in range(3000):
        assert (await client.answer()).status == 404


async def test_a_chunked_body_is_put_together(served):
    whole = served.signed(b"one,two")
    head, _, _ = whole.partition(b"\r\n\r\n")
    head = head.replace(b"Content-Length: 7", b"Transfer-Encoding: chunked")
    client = await served.connect()
    client.send(head + b"\r\n\r\n4\r\none,\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert (await client.answer()).body == b"one,two"
    assert served.container.asked[0].fields["content-length"] == "7"


async def test_a_request_may_come_byte_by_byte(served):
    client = await served.connect()
    for byte in served.signed(b"1,2"):
        client.send(bytes([byte]))
        await asyncio.sleep(0)
    assert (await client.answer()).body == b"1,2"


async def test_expect_continue_is_answered_before_the_body(served):
    head, _, body = served.signed(b"1,2", Expect="100-continue").partition(b"\r\n\r\n")
    client = await served.connect()
    client.send(head + b"\r\n\r\n")
    assert (await client.head())[0] == 100
    client.send(body)
    assert (await client.answer()).body == b"1,2"


@pytest.mark.parametrize(
    "rubbish",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET http://elsewhere/ HTTP/1.1\r\nHost: h\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_what_is_not_http_is_refused_and_the_connection_ends(served, rubbish):
    client = await served.connect()
    client.send(rubbish)
    got = await client.answer()
    assert got.status == 400
    assert got.headers["connection"] == "close"
    assert got.headers["x-amzn-requestid"]
    assert got.headers["x-amzn-errortype"] == "BadRequestException"
    assert await client.ended()


async def test_rubbish_behind_a_request_does_not_spoil_its_answer(served):
    client = await served.connect()
    client.send(served.signed(b"1,2") + b"rubbish\r\n\r\n")
    assert (await client.answer()).body == b"1,2"
    assert (await client.answer()).status == 400
    assert await client.ended()


async def test_a_body_with_broken_chunks_is_refused(served):
    head, _, _ = served.signed(b"1").partition(b"\r\n\r\n")
    client = await served.connect()
    client.send(head.replace(b"Content-Length: 1", b"Transfer-Encoding: chunked"))
    client.send(b"\r\n\r\nxyz\r\n")
    assert (await client.answer()).status == 400
    assert served.container.asked == []


async def test_http_1_0_ends_the_connection_unless_asked_to_keep_it(served):
    client = await served.connect()
    client.send(served.signed().replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\nConnection: keep-alive\r\n"))
    assert (await client.answer()).headers["connection"] == "keep-alive"
    client.send(served.signed().replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (await client.answer()).headers["connection"] == "close"
    assert await client.ended()


async def test_an_offer_to_upgrade_is_declined(served):
    offer = b"HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
    client = await served.connect()
    client.send(
        b"GET /_sagehen/internal/x HTTP/1.1\r\nHost: h\r\n\r\n".replace(b"HTTP/1.1\r\n", offer)
    )
    assert (await client.answer()).status == 404
    assert await client.ended()


async def test_an_offer_to_upgrade_with_a_body_is_refused_at_once(served):
    # The parser takes what follows such a head for the other protocol, so the body is lost.
    offer = b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 5\r\n\r\nhello"
    control = await served.control(lambda asked: (200, {}, b""))
    client = await served.connect()
    client.send(b"POST /bucket/key HTTP/1.1\r\nHost: h\r\n" + offer)
    got = await client.answer()
    assert (got.status, control.asked) == (400, [])
    assert "Upgrade" in got.json["Message"]
    assert await client.ended()


async def test_a_head_that_comes_with_the_body_before_it_is_not_too_large(served):
    client = await served.connect()
    client.send(served.signed(b"x" * 100_000) + b"GET /_sagehen/internal/x HTTP/1.1\r\nHost: h\r\n")
    assert (await client.answer()).status == 200
    client.send(b"\r\n")
    assert (await client.answer()).status == 404


@pytest.mark.parametrize("path", [b"/_sagehen/internal/gateway", b"/%5Fsagehen/%69nternal/gateway"])
async def test_internal_paths_are_not_for_the_outside(served, path):
    client = await served.connect()
    client.send(b"POST %b HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n" % path)
    assert (await client.answer()).status == 404


async def test_stopping_finishes_what_was_accepted(house, variant):
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(asked):
        begun.set()
        await release.wait()
        return 200, {}, asked.body

    house.route(variant(await house.fake(slow)))
    await house.start()
    client, idle = await house.connect(), await house.connect()
    client.send(house.signed(b"1,2"))
    await begun.wait()
    stopping = asyncio.create_task(house.stop())
    assert await idle.ended()
    release.set()
    got = await client.answer()
    assert (got.body, got.headers["connection"]) == (b"1,2", "close")
    await stopping
    with pytest.raises(ConnectionRefusedError):
        await house.connect()


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_who_sends_no_more_gets_its_answer(house, variant, eventually, version):
    release = asyncio.Event()

    async def slow(asked):
        await release.wait()
        return 200, {}, asked.body

    house.route(variant(await house.fake(slow)))
    await house.start()
    client = await house.connect()
    client.send(house.signed(b"1,2").replace(b"HTTP/1.1", version))
    client.writer.write_eof()
    await eventually(lambda: house.outstanding() == 1)
    (connection,) = house.gateway._server.connections
    await eventually(lambda: connection._half_closed)
    for _ in range(5):
        connection.cut_off_if_overdue(house.clock.elapsed)
    release.set()
    status, headers = await client.head()
    assert status == (100 if version == b"HTTP/1.1" else 200)
    got = await client.answer() if status == 100 else None
    assert (got.headers if got else headers)["connection"] == "close"
    assert (got.body if got else await client.reader.read()) == b"1,2"
    assert await client.ended()


async def test_who_sends_no_more_gets_all_its_answers(house, variant):
    asked_for, release = asyncio.Event(), asyncio.Event()

    async def slow(asked):
        asked_for.set()
        await release.wait()
        return 200, {}, asked.body

    house.route(variant(await house.fake(slow)))
    await house.start()
    client = await house.connect()
    client.send(house.signed(b"first") + house.signed(b"second") + house.signed(b"half")[:-1])
    client.writer.write_eof()
    await asked_for.wait()
    (connection,) = house.gateway._server.connections
    for _ in range(5):
        connection.cut_off_if_overdue(house.clock.elapsed)
    release.set()
    assert [(await client.answer()).body for _ in range(2)] == [b"first", b"second"]
    assert await client.ended()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: h\r\n"], ids=["idle", "head"])
async def test_who_sends_no_more_and_waits_for_nothing_is_let_go(served, sent):
    client = await served.connect()
    client.send(sent)
    client.writer.write_eof()
    assert await client.ended()
