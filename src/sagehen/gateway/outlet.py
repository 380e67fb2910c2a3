"""Writing to a connection at once."""

import asyncio
import os

__all__ = ["Outlet"]


class Outlet:
    """Writes to the transport of a connected socket, past the event loop where it can.

    uvloop keeps what is written until the end of its turn. Sent at once, the other side gets to
    work while we still count, and the loop need not look once more before it sleeps: some 20 µs of
    a hop at one connection.
    """

    __slots__ = ("_descriptor", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        socket = transport.get_extra_info("socket")
        is_plain = socket is not None and transport.get_extra_info("sslcontext") is None
        self._descriptor: int | None = socket.fileno() if is_plain else None
        """None where what is written is not what goes over the socket."""

    def write(self, data: bytes) -> None:
        """What is written to a connection that ends is dropped."""
        transport = self._transport
        if transport.is_closing():
            return  # Its descriptor may be somebody else's already.
        if self._descriptor is None or transport.get_write_buffer_size():
            transport.write(data)
            return
        try:
            sent = os.write(self._descriptor, data)
        except OSError:
            sent = 0  # Full, or broken: the loop tries again, and finds out which.
        if sent < len(data):
            transport.write(data[sent:] if sent else data)
