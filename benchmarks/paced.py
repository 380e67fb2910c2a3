"""An open-loop load generator for HTTP/1.1: requests go out when they are due, whatever comes back.

    python3 benchmarks/paced.py HOST PORT CONNECTIONS RATE SECONDS REQUESTS.json

RATE is in requests a second; 0 sends as many as are answered, as load.py does. REQUESTS.json holds
a list of pairs: a whole request and the body of the right answer to it, as text (latin-1), sent in
turn; where the file is replaced, it is read again. Every answer is compared. A connection that is
lost is opened again, and its request is a failure: nothing is sent twice. Prints one line of JSON.

Latency counts from when a request was due, also where it had to wait for a connection. The clock
of the times is the machine's monotonic one, the same for all processes.
"""

import json
import os
import select
import socket
import sys
import time
from array import array
from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from itertools import cycle
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from load import LENGTH, READ_BYTES, connect

ANSWER_TIMEOUT_SECONDS = 70.0
"""for one answer, and for all answers at the end; the server's own limit is 60 s"""
LOOK_SECONDS = 0.25
"""Between two looks after what does not come, and after the file of requests."""
KEPT_FAILURES = 10_000
KEPT_TEXT = 400


@dataclass(eq=False)
class Connection:
    """At most one request is under way on it."""

    socket: socket.socket
    port: int
    """Our side's: what the server knows it by."""
    opened_at: float
    busy: bool = False
    due_at: float = 0.0
    sent_at: float = 0.0
    expected: bytes = b""
    received: bytes = b""


@dataclass
class Failure:
    """A request without a right answer, or a connection that could not be had or kept."""

    kind: str
    """`answer`, `connection`, `idle` (lost with nothing under way), `connect` or `silence`."""
    status: int
    text: str
    port: int
    opened_at: float
    sent_at: float
    at: float


@dataclass
class Tally:
    sent: int = 0
    right: int = 0
    failed: int = 0
    milliseconds: array = field(default_factory=lambda: array("f"))
    failures: list[Failure] = field(default_factory=list)
    per_second: Counter[int] = field(default_factory=Counter)
    """Right answers by the second in which they came."""


class Requests:
    """Pairs of a request and its answer, in turn, from a file that may be replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = 0
        self.refresh()

    def refresh(self) -> None:
        seen = os.stat(self._path).st_ino
        if seen != self._seen:
            self._seen = seen
            pairs = json.loads(self._path.read_text())
            self._pairs = cycle([tuple(text.encode("latin-1") for text in pair) for pair in pairs])

    def next(self) -> tuple[bytes, bytes]:
        return next(self._pairs)


class Generator:
    def __init__(
        self,
        address: tuple[str, int],
        connections: int,
        rate: float,
        seconds: float,
        requests: Requests,
    ) -> None:
        self._address = address
        self._rate = rate
        self._seconds = seconds
        self._requests = requests
        self._epoll = select.epoll()
        self._open: dict[int, Connection] = {}
        self._free: deque[Connection] = deque()
        self._missing = connections
        """So many are to be opened."""
        self._start = 0.0
        self._looked_at = 0.0
        self.tally = Tally()

    def run(self) -> None:
        self._open_missing()
        self._start = now = time.monotonic()
        end = self._start + self._seconds
        while now < end or (self._has_work(end) and now < end + ANSWER_TIMEOUT_SECONDS):
            self._send_due(now, end)
            for descriptor, _ in self._epoll.poll(self._rest(now, end)):
                self._take(self._open[descriptor])
            now = time.monotonic()
            if now - self._looked_at > LOOK_SECONDS:
                self._look(now)
        for connection in list(self._open.values()):
            if connection.busy:
                self._lose(connection, "silence", "It was not answered before the end.")

    # When

    def _is_due(self, now: float, end: float) -> bool:
        if not self._rate:
            return now < end
        return self.tally.sent < (min(now, end) - self._start) * self._rate

    def _has_work(self, end: float) -> bool:
        return len(self._free) < len(self._open) or self._is_due(end, end)

    def _rest(self, now: float, end: float) -> float:
        """Returns the seconds until the next request; epoll rounds to milliseconds."""
        if not self._free or not self._rate or now >= end:
            return LOOK_SECONDS
        return max(0.0, min(LOOK_SECONDS, self._due_at(now) - now))

    def _due_at(self, now: float) -> float:
        return self._start + self.tally.sent / self._rate if self._rate else now

    # Requests and answers

    def _send_due(self, now: float, end: float) -> None:
        while self._free and self._is_due(now, end):
            connection = self._free.popleft()
            request, connection.expected = self._requests.next()
            connection.due_at = self._due_at(now)
            connection.busy = True
            self.tally.sent += 1
            connection.sent_at = time.monotonic()
            try:
                # A request is far smaller than a socket's buffer, so it goes out whole.
                connection.socket.sendall(request)
            except OSError as error:
                self._lose(connection, "connection", f"sending: {error}")

    def _take(self, connection: Connection) -> None:
        try:
            piece = connection.socket.recv(READ_BYTES)
        except OSError as error:
            self._lose(connection, "connection", f"receiving: {error}")
            return
        if not piece:
            self._lose(connection, "connection", f"closed after {connection.received[:100]!r}")
            return
        received = connection.received = connection.received + piece
        head_end = received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        length = LENGTH.search(received, 0, head_end)
        if length is None or not connection.busy:
            self._lose(connection, "answer", f"not to be understood: {received[:300]!r}")
        elif len(received) >= head_end + 4 + int(length[1]):
            self._answered(connection, received[9:12], received[head_end + 4 :])

    def _answered(self, connection: Connection, status: bytes, body: bytes) -> None:
        now = time.monotonic()
        if status == b"200" and body == connection.expected:
            self.tally.right += 1
            self.tally.milliseconds.append((now - connection.due_at) * 1000)
            self.tally.per_second[int(now - self._start)] += 1
        else:
            self._fail(connection, "answer", body.decode("latin-1"), int(status))
        connection.received = b""
        connection.busy = False
        self._free.append(connection)

    # What goes wrong

    def _lose(self, connection: Connection, kind: str, text: str) -> None:
        """The connection is of no use any more; another takes its place."""
        self._fail(connection, kind if connection.busy else "idle", text)
        if not connection.busy:
            self._free.remove(connection)
        del self._open[connection.socket.fileno()]
        connection.socket.close()
        self._missing += 1
        self._open_missing()

    def _fail(self, connection: Connection, kind: str, text: str, status: int = 0) -> None:
        now = time.monotonic()
        sent_at = connection.sent_at if connection.busy else now
        self._note(Failure(kind, status, text, connection.port, connection.opened_at, sent_at, now))

    def _note(self, failure: Failure) -> None:
        self.tally.failed += 1
        if len(self.tally.failures) < KEPT_FAILURES:
            failure.text = failure.text[:KEPT_TEXT]
            self.tally.failures.append(failure)

    def _open_missing(self) -> None:
        while self._missing:
            now = time.monotonic()
            try:
                opened = connect(self._address)
            except OSError as error:
                self._note(Failure("connect", 0, str(error), 0, now, now, time.monotonic()))
                return  # at the next look again
            self._missing -= 1
            connection = Connection(opened, opened.getsockname()[1], time.monotonic())
            self._open[opened.fileno()] = connection
            self._free.append(connection)
            self._epoll.register(opened, select.EPOLLIN)

    def _look(self, now: float) -> None:
        self._looked_at = now
        self._requests.refresh()
        self._open_missing()
        for connection in list(self._open.values()):
            if connection.busy and now - connection.sent_at > ANSWER_TIMEOUT_SECONDS:
                self._lose(connection, "silence", f"no answer for {ANSWER_TIMEOUT_SECONDS:g} s")


def summary(tally: Tally, rate: float, seconds: float) -> dict[str, Any]:
    times = np.frombuffer(tally.milliseconds, dtype=np.float32)
    p50, p99, p999, longest = np.percentile(times, (50, 99, 99.9, 100)) if len(times) else [0.0] * 4
    in_time = sum(count for second, count in tally.per_second.items() if second < seconds)
    return {
        "offered": ceil(rate * seconds) if rate else tally.sent,
        "sent": tally.sent,
        "right": tally.right,
        "failed": tally.failed,
        "requests_per_second": in_time / seconds,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "p999_ms": float(p999),
        "longest_ms": float(longest),
        "per_second": [tally.per_second[second] for second in range(int(seconds))],
        "failures": [asdict(failure) for failure in tally.failures],
    }


def main() -> None:
    host, port, connections, rate, seconds, requests = sys.argv[1:]
    generator = Generator(
        (host, int(port)), int(connections), float(rate), float(seconds), Requests(Path(requests))
    )
    generator.run()
    print(json.dumps(summary(generator.tally, float(rate), float(seconds))))


if __name__ == "__main__":
    main()
