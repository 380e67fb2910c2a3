"""Writing past the event loop must change nothing but the time."""

import asyncio
import socket

import pytest

from sagehen.gateway.outlet import Outlet


class Writer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.outlet = Outlet(transport)
        self.lost = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc):
        self.lost.set_result(exc)


@pytest.fixture
async def connected(short_path):
    """A transport's writer, and the plain socket at its other end."""
    loop = asyncio.get_running_loop()
    accepted = loop.create_future()

    def make():
        writer = Writer()
        accepted.set_result(writer)
        return writer

    server = await loop.create_unix_server(make, short_path / "socket")
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.connect(str(short_path / "socket"))
        theirs.setblocking(False)
        writer = await accepted
        await asyncio.sleep(0)
        yield writer, theirs
        writer.transport.abort()
        await writer.lost
    server.close()


async def test_what_is_written_is_there_at_once(connected):
    writer, theirs = connected
    writer.outlet.write(b"now")
    assert theirs.recv(10) == b"now"


async def test_what_does_not_fit_follows_in_order(connected):
    writer, theirs = connected
    parts = [bytes([number]) * 100_000 for number in range(20)]
    for part in parts:
        writer.outlet.write(part)
    loop, received = asyncio.get_running_loop(), b""
    async with asyncio.timeout(10):
        while len(received) < 2_000_000:
            received += await loop.sock_recv(theirs, 1_000_000)
    assert received == b"".join(parts)


async def test_nothing_goes_to_a_descriptor_that_was_given_up(connected):
    writer, theirs = connected
    writer.transport.abort()
    writer.outlet.write(b"late")
    async with asyncio.timeout(10):
        assert await asyncio.get_running_loop().sock_recv(theirs, 10) == b""
    writer.outlet.write(b"later")


async def test_a_broken_connection_is_found_out_by_the_loop(connected):
    writer, theirs = connected
    theirs.close()
    writer.outlet.write(b"to nobody")
    async with asyncio.timeout(10):
        await writer.lost
