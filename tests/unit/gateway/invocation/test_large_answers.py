"""Answers that are passed on as they come."""

import asyncio

import pytest


async def test_a_large_answer_is_passed_on_in_parts(house, variant):
    body = bytes(range(256)) * 8192
    house.route(variant(await house.fake(lambda asked: (200, {}, body))))
    await house.start()
    got = await house.invoke()
    assert got.body == body
    assert got.headers["content-length"] == str(len(body))


async def test_a_large_answer_of_unknown_length_is_passed_on_in_chunks(house, variant):
    part = b"10000\r\n" + bytes(65536) + b"\r\n"
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + part * 8 + b"0\r\n\r\n"
    house.route(variant(await house.fake(lambda asked: answer)))
    await house.start()
    got = await house.invoke()
    assert got.headers["transfer-encoding"] == "chunked"
    assert got.body == bytes(8 * 65536)


async def test_an_answer_that_breaks_off_does_not_look_whole(house, variant):
    def half(asked):
        asyncio.get_running_loop().call_later(0.002, container.hang_up)
        return b"HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n" + bytes(300_000)

    container = await house.fake(half)
    house.route(variant(container))
    await house.start()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await house.invoke()


async def test_a_slow_reader_holds_its_container_back(house, variant, comes_to_rest):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 400000000\r\n\r\n"
    place, sent = await house.endless(head, bytes(1_000_000))
    house.route(variant(place))
    await house.start()
    client = await house.connect()
    client.stop_reading()
    client.send(house.signed())
    assert await comes_to_rest(sent) < 50
    client.close()


async def test_a_large_answer_has_the_time_that_its_reader_takes(house, variant, eventually):
    """The time-out of an invocation is the container's."""

    async def large(head, reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n" + bytes(8_000_000))
        await writer.drain()
        await reader.read()

    house.route(variant(await house.raw(large, house.home.run / "large.sock")))
    await house.start()
    client = await house.connect()
    client.send(house.signed())
    status, _ = await client.head()
    client.writer.transport.pause_reading()
    house.clock.advance(100)
    await eventually(lambda: house.gateway._server.now == house.clock.monotonic())
    client.writer.transport.resume_reading()
    assert status == 200
    assert await client.reader.readexactly(8_000_000) == bytes(8_000_000)
