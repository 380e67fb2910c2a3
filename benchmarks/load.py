"""A closed-loop load generator for HTTP/1.1: as many requests as the server answers.

    python3 benchmarks/load.py HOST PORT CONNECTIONS SECONDS REQUESTS.json [COUNT]

HOST may be the path of a Unix socket; PORT means nothing then. With COUNT, so many requests are
sent, unless SECONDS (may be `inf`) are over before, and all their answers are waited for.
REQUESTS.json holds a list of whole requests as text (latin-1), sent in turn. Prints one line of
JSON. Plain sockets on epoll, without an event loop: the generator shares the machine with what it
measures, so what it costs matters.
"""

import json
import re
import select
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

READ_BYTES = 65536
LONGEST_SILENCE_SECONDS = 10
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass
class Connection:
    """One request is under way on it at any time."""

    socket: socket.socket
    sent_at: float = 0.0
    received: bytearray = field(default_factory=bytearray)
    answer_bytes: int = 0
    """of head and body, once the head has come"""


@dataclass
class Tally:
    milliseconds: list[float] = field(default_factory=list)
    failures: int = 0
    """Answers that are not of success, 2xx."""


def main() -> None:
    host, port, connections, seconds, requests, *count = sys.argv[1:]
    texts = json.loads(Path(requests).read_text())
    began = time.perf_counter()
    tally, elapsed = load(
        (host, int(port)),
        [text.encode("latin-1") for text in texts],
        int(connections),
        float(seconds),
        int(count[0]) if count else None,
    )
    # The clock is the machine's: whoever waits for more than the answers counts from there.
    print(json.dumps({"began": began, **summary(tally, elapsed)}))


def load(
    address: tuple[str, int],
    requests: list[bytes],
    connections: int,
    seconds: float,
    count: int | None = None,
) -> tuple[Tally, float]:
    """Keep `connections` requests under way for `seconds`; what came back, and in how long."""
    supply = islice(cycle(requests), count)
    epoll = select.epoll()
    opened = [Connection(connect(address)) for _ in range(connections)]
    by_descriptor = {connection.socket.fileno(): connection for connection in opened}
    tally = Tally()
    start = time.perf_counter()
    under_way = 0
    for descriptor, connection in by_descriptor.items():
        epoll.register(descriptor, select.EPOLLIN)
        under_way += send(connection, supply)
    end = start + seconds
    # At least one answer, however long it takes: without it there is nothing to tell.
    while under_way and (time.perf_counter() < end or not tally.milliseconds):
        events = epoll.poll(LONGEST_SILENCE_SECONDS)
        if not events:
            raise SystemExit(f"No answer for {LONGEST_SILENCE_SECONDS} s.")
        for descriptor, _ in events:
            if receive(by_descriptor[descriptor], tally):
                under_way += send(by_descriptor[descriptor], supply) - 1
    elapsed = time.perf_counter() - start
    for connection in opened:
        connection.socket.close()
    return tally, elapsed


def connect(address: tuple[str, int]) -> socket.socket:
    if address[0].startswith("/"):
        local = socket.socket(socket.AF_UNIX)
        local.connect(address[0])
        return local
    remote = socket.create_connection(address)
    remote.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return remote


def send(connection: Connection, supply: Iterator[bytes]) -> bool:
    """Sends the next request; returns False when none is left."""
    request = next(supply, None)
    if request is None:
        return False
    # A request is far smaller than a socket's buffer, so it goes out whole.
    connection.sent_at = time.perf_counter()
    connection.socket.sendall(request)
    return True


def receive(connection: Connection, tally: Tally) -> bool:
    """Take what has arrived; whether an answer is complete."""
    piece = connection.socket.recv(READ_BYTES)
    if not piece:
        raise SystemExit(f"The server closed a connection after {connection.received[:300]!r}.")
    connection.received += piece
    if not connection.answer_bytes:
        head_end = connection.received.find(b"\r\n\r\n")
        if head_end < 0:
            return False
        length = LENGTH.search(connection.received, 0, head_end)
        if length is not None:
            connection.answer_bytes = head_end + 4 + int(length[1])
        elif b"chunked" not in connection.received[:head_end]:
            raise SystemExit(f"An answer of unknown length: {connection.received[:300]!r}")
    if connection.answer_bytes:
        if len(connection.received) < connection.answer_bytes:
            return False
    elif not connection.received.endswith(b"\r\n0\r\n\r\n"):
        return False
    tally.milliseconds.append((time.perf_counter() - connection.sent_at) * 1000)
    if connection.received[9:10] != b"2":
        tally.failures += 1
    connection.received.clear()
    connection.answer_bytes = 0
    return True


def summary(tally: Tally, seconds: float) -> dict[str, float]:
    ordered = sorted(tally.milliseconds)
    return {
        "answers": len(ordered),
        "requests_per_second": len(ordered) / seconds,
        "p50_ms": ordered[len(ordered) // 2],
        "p90_ms": ordered[len(ordered) * 9 // 10],
        "p99_ms": ordered[len(ordered) * 99 // 100],
        "failures": tally.failures,
    }


if __name__ == "__main__":
    main()
