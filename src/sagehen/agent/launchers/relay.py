"""The process that makes a container's outgoing connections on the machine.

`become_container` forks it before it leaves the machine's network. It gets listeners in the
container's network namespace over a Unix socket, from `container_network.send_listeners`, and
relays what comes there: TCP to the address to which the container meant to connect, datagrams to
the machine's name server. Like `become_container` it imports only C modules.
"""

import _socket
import errno
import posix
import resource
import select
import struct
import time

__all__ = ["serve"]

_SO_ORIGINAL_DST, _ADDRESS_BYTES = 80, 16
_TRANSPARENT, _DNS = ord("T"), ord("D")
"""as `container_network` names them"""
_MAX_LISTENERS = 16
_CHUNK = 65536
"""bytes read at once, and the most that wait for a slow reader"""
_MAX_CONNECTIONS = 2000
_SPARE_DESCRIPTORS = 64
_FULL_SECONDS = 0.1
"""until the next try when all descriptors are in use"""
_MAX_QUERIES = 256
_QUERY_SECONDS = 10.0
_RESET = struct.pack("=ii", 1, 0)
_KEEP_ALIVE_SECONDS = 60
_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT


class _End:
    """One side of a relayed connection."""

    other: "_End"

    def __init__(self, connection: _socket.socket, connecting: bool = False) -> None:
        connection.setblocking(False)
        connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_KEEPALIVE, 1)
        connection.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_KEEPIDLE, _KEEP_ALIVE_SECONDS)
        connection.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        self.connection = connection
        self.descriptor = connection.fileno()
        self.connecting = connecting
        self.unsent = b""
        self.has_ended = False
        """all was read from it"""
        self.mask = 0

    def wanted(self) -> int:
        if self.connecting:
            return _WRITE
        reads = not (self.has_ended or self.other.unsent or self.other.connecting)
        return (_READ if reads else 0) | (_WRITE if self.unsent else 0)

    def receive(self) -> None:
        """Raises OSError."""
        try:
            data = self.connection.recv(_CHUNK)
        except BlockingIOError:
            return  # it is ready to be written to
        self.has_ended = not data
        self.other.unsent = data
        self.other.send()

    def send(self) -> None:
        """Raises OSError."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self.connection.send(self.unsent) :]
        except BlockingIOError:
            return
        if self.other.has_ended:
            self.connection.shutdown(_socket.SHUT_WR)

    def connected(self) -> None:
        """Raises OSError."""
        number = self.connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
        if number:
            raise OSError(number, posix.strerror(number))
        self.connecting = False


class _Relay:
    """All that one container is connected to; never blocks but in its one `poll`."""

    def __init__(self, listeners: dict[int, tuple[int, _socket.socket]]) -> None:
        self._listeners = listeners
        self._poll = select.epoll()
        self._ends: dict[int, _End] = {}
        self._queries: dict[int, tuple[_socket.socket, _socket.socket, tuple[str, int], float]] = {}
        """by descriptor, the oldest first: upstream, listener, client, deadline"""
        self._listening: set[int] = set()
        self._full_until = 0.0
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard if hard > 0 else soft
        self._most_ends = min(
            2 * _MAX_CONNECTIONS, max(2, soft - _SPARE_DESCRIPTORS - _MAX_QUERIES)
        )

    def run(self) -> None:
        while True:
            self._listen_if_free()
            self.turn(self._patience())

    def turn(self, seconds: float | None) -> None:
        ready = [descriptor for descriptor, _ in self._poll.poll(seconds)]
        for descriptor in ready:
            if descriptor in self._ends:
                self._move(self._ends[descriptor])
            elif descriptor in self._queries:
                self._answer(descriptor)
        # Last: new connections may have the numbers of those that have just ended.
        for descriptor in self._listening.intersection(ready):
            self._take(*self._listeners[descriptor])
        self._drop_late_queries()

    def _listen_if_free(self) -> None:
        is_free = time.monotonic() >= self._full_until
        for descriptor, (kind, _) in self._listeners.items():
            free = is_free and (kind == _DNS or len(self._ends) + 2 <= self._most_ends)
            if free and descriptor not in self._listening:
                self._poll.register(descriptor, _READ)
                self._listening.add(descriptor)
            elif not free and descriptor in self._listening:
                self._poll.unregister(descriptor)
                self._listening.discard(descriptor)

    def _patience(self) -> float | None:
        """Seconds until something is to be done without an event."""
        times = [query[3] for query in self._queries.values()][:1]
        if time.monotonic() < self._full_until:
            times.append(self._full_until)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _take(self, kind: int, listener: _socket.socket) -> None:
        try:
            if kind == _DNS:
                self._query(listener)
            else:
                self._accept(kind, listener)
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._full_until = time.monotonic() + _FULL_SECONDS

    # TCP

    def _accept(self, kind: int, listener: _socket.socket) -> None:
        """Raises OSError."""
        client = _socket.socket(fileno=listener._accept()[0])  # type: ignore[attr-defined]
        try:
            address = _original(client) if kind == _TRANSPARENT else listener.getsockname()
            outside = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        except OSError:
            _close(client)
            raise
        inside, other = _End(client), _End(outside, connecting=True)
        inside.other, other.other = other, inside
        number = outside.connect_ex(address)
        self._ends |= {inside.descriptor: inside, other.descriptor: other}
        if number not in (0, errno.EINPROGRESS):
            self._end(inside)
        else:
            self._watch(other)

    def _move(self, end: _End) -> None:
        try:
            if end.connecting:
                end.connected()
            elif end.mask & _READ:
                end.receive()
            if end.unsent:
                end.send()
        except OSError:
            self._end(end)
            return
        other = end.other
        if end.has_ended and other.has_ended and not (end.unsent or other.unsent):
            self._end(end, reset=False)
            return
        self._watch(end)
        self._watch(other)

    def _watch(self, end: _End) -> None:
        mask = end.wanted()
        # A connection with an empty mask would still be reported when it breaks, again and again.
        if mask and end.mask:
            self._poll.modify(end.descriptor, mask)
        elif mask:
            self._poll.register(end.descriptor, mask)
        elif end.mask:
            self._poll.unregister(end.descriptor)
        end.mask = mask

    def _end(self, end: _End, *, reset: bool = True) -> None:
        for each in (end, end.other):
            if each.mask:
                self._poll.unregister(each.descriptor)
            del self._ends[each.descriptor]
            _close(each.connection, reset=reset)

    # Names

    def _query(self, listener: _socket.socket) -> None:
        """Raises OSError."""
        data, client = listener.recvfrom(_CHUNK)
        while len(self._queries) >= _MAX_QUERIES:
            self._drop(next(iter(self._queries)))
        upstream = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
        upstream.setblocking(False)
        try:
            upstream.connect(listener.getsockname())
            upstream.send(data)
        except OSError:
            upstream.close()
            raise
        descriptor = upstream.fileno()
        deadline = time.monotonic() + _QUERY_SECONDS
        self._queries[descriptor] = (upstream, listener, client, deadline)
        self._poll.register(descriptor, _READ)

    def _answer(self, descriptor: int) -> None:
        upstream, listener, client, _ = self._queries[descriptor]
        try:  # noqa: SIM105
            listener.sendto(upstream.recv(_CHUNK), client)
        except OSError:
            pass  # no name server, or the client has gone: it asks again
        self._drop(descriptor)

    def _drop_late_queries(self) -> None:
        now = time.monotonic()
        for descriptor, query in list(self._queries.items()):
            if query[3] > now:
                return
            self._drop(descriptor)

    def _drop(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._queries.pop(descriptor)[0].close()


def _original(client: _socket.socket) -> tuple[str, int]:
    """The address to which the container connected. Raises OSError if that is the listener's."""
    address = client.getsockopt(_socket.SOL_IP, _SO_ORIGINAL_DST, _ADDRESS_BYTES)
    if address[4] in (0, 127):
        raise OSError(errno.EACCES, "the machine's own loopback device is not the container's")
    return _socket.inet_ntoa(address[4:8]), int.from_bytes(address[2:4], "big")


def _close(connection: _socket.socket, *, reset: bool = True) -> None:
    if reset:
        try:  # noqa: SIM105
            connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, _RESET)
        except OSError:
            pass
    connection.close()


def _receive(descriptor: int) -> dict[int, tuple[int, _socket.socket]]:
    """Waits for the listeners; returns none if the container has not started."""
    carrier = _socket.socket(fileno=descriptor)
    kinds, controls, _, _ = carrier.recvmsg(_MAX_LISTENERS, _socket.CMSG_SPACE(4 * _MAX_LISTENERS))
    carrier.close()
    numbers = struct.unpack(f"={len(kinds)}i", controls[0][2]) if kinds else ()
    listeners = {}
    for kind, number in zip(kinds, numbers, strict=True):
        listeners[number] = (kind, _socket.socket(fileno=number))
        listeners[number][1].setblocking(False)
    return listeners


def serve(carrier: int) -> None:
    """Returns only if the container's start has failed."""
    if listeners := _receive(carrier):
        _Relay(listeners).run()
