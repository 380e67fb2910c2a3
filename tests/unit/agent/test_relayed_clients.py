"""Requests to containers of another node through a relay, by the clients that are used."""

import asyncio
import socket

import pytest

from sagehen.base.clock import SYSTEM
from sagehen.base.errors import Unavailable
from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.serving.first_bytes import FirstBytes
from sagehen.http1.call import call_once
from sagehen.http1.pool import CONNECT_TIMEOUT_SECONDS
from sagehen.link.upstream import open_upstreams
from support.fixtures.container_relay import CONTAINER, LINK
from support.fixtures.gateway import eventually
from support.link_gateway import MEBIBYTE, Gateway
from support.links import Request


async def test_an_answer_before_the_end_of_the_body_arrives(far):
    """The container reads no more, so that the rest of the body meets a closed socket."""

    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nlong")
        await writer.drain()
        writer.transport.abort()

    await far.container(refuse)
    request = Request(
        open_upstreams(CONTAINER, SYSTEM, connector=far.connector),
        bytes(20 * MEBIBYTE),
        at_once=20 * MEBIBYTE,
    )
    await eventually(lambda: request.is_answered or request.is_broken)
    assert (request.status, request.body) == (413, b"long")


async def test_http_goes_through(far):
    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"GET /execution-parameters")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nopen end")

    await far.container(answer, number=1)
    told = await call_once(
        "node:far/i-1/1",
        "GET",
        "/execution-parameters",
        timeout_seconds=60,
        connector=far.connector,
    )
    assert told.text == "open end"


async def test_an_answer_without_length_that_is_cut_off_is_not_whole(far):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        await reader.read()

    await far.container(answer)
    request = Request(open_upstreams(CONTAINER, SYSTEM, connector=far.connector), b"x")
    await eventually(lambda: request.body == b"half")
    far.relay.close()
    await eventually(lambda: request.is_answered or request.is_broken)
    assert request.is_broken
    assert not request.call.not_begun


async def test_a_link_goes_through_and_what_counts_as_begun(far, short_path):
    """Marks of begun requests stay on the other machine: whatever was sent as a whole counts."""
    gateway = Gateway(short_path)
    path = short_path / "s.sock"
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: FirstBytes(gateway.server, short_path), path)
    far.containers["i-1", 0] = f"link:{path}"
    slots = []
    client = open_upstreams(LINK, SYSTEM, slots.append, connector=far.connector)
    large = Request(client, bytes(25 * MEBIBYTE), at_once=25 * MEBIBYTE)
    await eventually(lambda: gateway.requests)
    gateway.requests.pop().respond(ModelAnswer(200, bytes(30 * MEBIBYTE)))
    await eventually(lambda: large.is_answered)
    assert len(large.body) == 30 * MEBIBYTE
    assert slots == [7]

    sent = Request(client, b"sent")
    await eventually(lambda: gateway.requests)
    half = Request(client, bytes(9 * MEBIBYTE), at_once=MEBIBYTE)
    await eventually(lambda: half.call is not None)
    far.relay.close()
    await eventually(lambda: sent.is_broken and half.is_broken)
    assert not sent.call.not_begun
    assert half.call.not_begun
    far.containers.clear()
    nowhere = Request(client, b"x")
    await eventually(lambda: nowhere.was_refused)
    assert not list(short_path.glob("*begun*"))
    client.abort()
    server.close()


async def test_a_silent_node_is_given_up(far):
    """Its socket takes connections, and nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        far.addresses["far"] = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable):
            await call_once(CONTAINER, "GET", "/ping", timeout_seconds=0.1, connector=far.connector)
    assert CONNECT_TIMEOUT_SECONDS < 10, "links and pools bound it themselves"
