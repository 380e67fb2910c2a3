"""The address form `handoff:/path`: TCP connections that another network namespace hands over.

A client connects to the Unix socket at the path. The server, a process in the namespace, answers
with one message: an errno of four bytes, little-endian, and with errno 0 a connected TCP socket as
SCM_RIGHTS. Then it closes the Unix connection. A socket stays in the namespace in which it was
created, so from then on requests cost what they cost on the machine's own loopback.
"""

import array
import asyncio
import errno
import os
import socket

__all__ = ["ERRNO_BYTES", "receive_socket"]

ERRNO_BYTES = 4


async def receive_socket(path: str) -> socket.socket:
    """Returns a connected, non-blocking socket.

    Raises:
        BlockingIOError: the server's backlog is full.
        OSError: as connecting to the container itself would, such as ConnectionRefusedError.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as carrier:
        carrier.setblocking(False)
        # Not `loop.sock_connect`, which would wait for a full backlog as if it were connecting.
        carrier.connect(path)
        readable = loop.create_future()
        loop.add_reader(carrier, _wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(carrier)
        return _read_answer(carrier)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _read_answer(carrier: socket.socket) -> socket.socket:
    space = socket.CMSG_SPACE(array.array("i").itemsize)
    message, controls, _, _ = carrier.recvmsg(ERRNO_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    connections = [socket.socket(fileno=number) for number in _descriptors(controls)]
    number = int.from_bytes(message, "little") if len(message) == ERRNO_BYTES else None
    if number == 0 and len(connections) == 1:
        connections[0].setblocking(False)
        return connections[0]
    for connection in connections:
        connection.close()
    # A server that has ended sends nothing.
    number = number or errno.ECONNREFUSED
    raise OSError(number, os.strerror(number))


def _descriptors(controls: list[tuple[int, int, bytes]]) -> list[int]:
    descriptors = array.array("i")
    for level, kind, data in controls:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return list(descriptors)
