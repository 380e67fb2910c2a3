"""What a request or a connection leaves is freed at once: the collector seldom comes, and stops
everybody when it does."""

import asyncio
from functools import partial

import pytest

from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.serving.first_bytes import FirstBytes
from sagehen.containers.modelserver.serving.server import ModelServer
from sagehen.frame.routes import VariantRoute

STREAM = "/endpoints/price/invocations-response-stream"
LIST_MODELS = b"GET /models HTTP/1.1\r\nHost: x\r\n%b\r\n"


@pytest.mark.parametrize(
    "path", ["/endpoints/price/invocations", STREAM], ids=["whole", "streamed"]
)
@pytest.mark.parametrize("status", [200, 500])
async def test_an_invocation_leaves_no_cycle(house, variant, kept, path, status):
    fake = await house.fake(lambda asked: (status, {}, b"4"))
    house.route(variant(fake))
    await house.start()
    client = await house.connect()
    for _ in range(5):
        client.send(house.signed(path=path))
        await client.answer()
    assert kept() == {}


@pytest.mark.parametrize(
    "path", ["/endpoints/price/invocations", STREAM], ids=["whole", "streamed"]
)
@pytest.mark.parametrize("size", [10, 200_000, 600_000], ids=["small", "large", "windows"])
async def test_an_invocation_over_a_link_leaves_no_cycle(house, variant, kept, path, size):
    server = ModelServer(lambda request: request.respond(ModelAnswer(200, request.body)), 10**6)
    address = house.home.run / "link"
    listener = await asyncio.get_running_loop().create_unix_server(
        partial(FirstBytes, server, house.home.run), str(address)
    )
    house.route(variant(f"link:{address}"))
    await house.start()
    client = await house.connect()
    for _ in range(3):
        client.send(house.signed(bytes(size), path=path))
        assert (await client.answer()).status == 200
    assert kept() == {}
    listener.close()


async def test_a_copy_for_a_shadow_leaves_none(house, variant, kept, echo, eventually):
    production, copied = await house.fake(echo), await house.fake(echo)
    shadow: VariantRoute = variant(copied, name="Next")
    house.route(variant(production), shadow=shadow)
    await house.start()
    client = await house.connect()
    for _ in range(5):
        client.send(house.signed())
        await client.answer()
    await eventually(lambda: len(copied.asked) == 5 and house.outstanding() == 0)
    assert kept() == {}


async def client_closes(house, client):
    client.send(house.signed())
    await client.answer()
    client.close()


async def client_resets(house, client):
    client.send(house.signed())
    await client.answer()
    client.writer.transport.abort()


async def client_leaves_midway(house, client):
    client.send(house.signed(bytes(100_000))[:-1])
    await asyncio.sleep(0.001)
    client.writer.transport.abort()


async def we_close(house, client):
    client.send(house.signed(Connection="close"))
    await client.answer()
    assert await client.ended()


async def refused_head(house, client):
    client.send(b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n")
    assert (await client.answer()).status == 501
    client.close()


async def not_http(house, client):
    client.send(b"rubbish\r\n\r\n")
    assert (await client.answer()).status == 400
    client.close()


async def upgrade(house, client):
    client.send(LIST_MODELS % b"Upgrade: h2c\r\nConnection: Upgrade\r\n")
    assert (await client.answer()).status == 200
    assert await client.ended()


async def tunnelled(house, client):
    client.send(LIST_MODELS % b"")
    assert (await client.answer()).status == 200
    client.close()


async def cut_off(house, client):
    client.send(b"GET / HT")
    while not house.gateway._server.connections:  # noqa: ASYNC110
        await asyncio.sleep(0)
    house.gateway._server.abort()
    assert await client.ended()


@pytest.mark.parametrize(
    "end",
    [
        client_closes,
        client_resets,
        client_leaves_midway,
        we_close,
        refused_head,
        not_http,
        upgrade,
        tunnelled,
        cut_off,
    ],
)
async def test_a_connection_that_ended_leaves_none(house, variant, kept, echo, eventually, end):
    house.route(variant(await house.fake(echo)))
    await house.control(lambda asked: (200, {}, b"{}"))
    await house.start()
    for _ in range(5):
        await end(house, await house.connect())
    await eventually(lambda: not house.gateway._server.connections)
    assert kept() == {}
