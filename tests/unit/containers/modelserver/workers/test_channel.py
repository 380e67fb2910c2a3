"""The server's end of a worker's socket, with the test at the other end."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest

from sagehen.containers.modelserver.workers.channel import WorkerChannel
from sagehen.containers.modelserver.workers.messages import (
    CallMessage,
    FromWorker,
    LoadedMessage,
    MessageReader,
    Piece,
    Taken,
    ToWorker,
    frame,
)


class Worker:
    """The other end."""

    def __init__(self) -> None:
        ours, self.socket = socket.socketpair()
        self.socket.setblocking(False)
        self.reader: MessageReader[ToWorker] = MessageReader(
            self.socket, msgspec.msgpack.Decoder(ToWorker)
        )
        self.received: list[tuple[FromWorker, bytes]] = []
        self.arrived = asyncio.Event()
        self.channel = WorkerChannel(ours, self._on_message)

    def _on_message(self, message: FromWorker, body: bytes) -> None:
        self.received.append((message, body))
        self.arrived.set()

    async def read(self, count: int) -> list[tuple[ToWorker, bytes]]:
        readable, loop, found = asyncio.Event(), asyncio.get_running_loop(), []
        loop.add_reader(self.socket, readable.set)
        async with asyncio.timeout(120):
            while len(found) < count:
                await readable.wait()
                readable.clear()
                with contextlib.suppress(BlockingIOError):
                    found += self.reader.receive()
        loop.remove_reader(self.socket)
        return found


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = Worker()
    yield worker
    worker.channel.close()
    worker.socket.close()


async def test_messages_arrive_in_order(worker: Worker) -> None:
    worker.channel.send(CallMessage(1, 0, {}), b"first")
    worker.channel.send(Taken(1, 0, 5))
    assert await worker.read(2) == [(CallMessage(1, 0, {}), b"first"), (Taken(1, 0, 5), b"")]


async def test_more_than_the_socket_holds_is_sent_as_it_is_read(worker: Worker) -> None:
    bodies = [bytes([number]) * 200_000 for number in range(20)]
    for number, body in enumerate(bodies):
        worker.channel.send(CallMessage(1, number, {}), body)
    assert [body for _, body in await worker.read(20)] == bodies


async def test_replies_are_delivered(worker: Worker) -> None:
    worker.socket.send(b"".join([*frame(LoadedMessage(1)), *frame(Piece(1), b"piece")]))
    await worker.arrived.wait()
    assert worker.received == [(LoadedMessage(1), b""), (Piece(1), b"piece")]


async def test_what_has_arrived_is_delivered_before_the_end(worker: Worker) -> None:
    worker.socket.send(frame(LoadedMessage(1))[0])
    worker.channel.drain()
    assert worker.received == [(LoadedMessage(1), b"")]
    worker.channel.send(Taken(1, 0, 5))
    worker.channel.close()


async def test_other_code_that_writes_there_is_noticed(worker: Worker) -> None:
    worker.socket.send(b"\xff" * 8 + b"printed")
    worker.channel.drain()
    assert worker.channel.broken is not None
    assert worker.received == []
