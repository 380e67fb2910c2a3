"""The cost of a growing queue: time of each step, disk, and the server's memory."""

import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from async_peers import SENDERS, TEXTS
from async_sides import NAME, OUTPUTS, deploy, input_of, scale_to_zero, side
from frame import Measured, put_under_load
from inside import Inside
from other_load import OtherLoad
from sides import Server, server
from sqlalchemy import Connection

from sagehen.services.sagemaker.async_inference import (
    lease_store as async_leases,
)
from sagehen.services.sagemaker.async_inference import (
    request_store as async_requests,
)
from sagehen.services.sagemaker.async_inference.invocations import ordered_id
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncRequest,
    AsyncState,
    OutputTarget,
)
from sagehen.state.database import Database

AT_ONCE = 64
"""Requests that a step is about."""
FILLED_AT_ONCE = 2000
STEPS = ("enqueue", "lease", "end", "size")
"""The size is asked for by itself, the others are about AT_ONCE requests in one transaction."""
DEADLINE_SECONDS = 6 * 3600
LEASE_SECONDS = 30


@dataclass(frozen=True)
class Level:
    """Measurements with one number of waiting requests."""

    rows: int
    milliseconds: Measured
    """By step, including its share of the wait for the disk; `<step> alone` excludes it."""
    disk_mib: float
    """size of the whole state"""
    memory_mib: Measured
    """Resident, by role, after the server was asked for a while; empty where it was not."""
    through_server: Measured
    """Enqueues through the gateway; empty likewise."""


def measure(levels: Sequence[int], seconds: float, other_load: OtherLoad) -> list[Level]:
    """A queue that grows from level to level; the server runs over the first and the last."""
    with tempfile.TemporaryDirectory(prefix="sgh-", ignore_cleanup_errors=True) as name:
        folder, queues, servers = Path(name), [], []
        with server(folder) as running:
            deploy(running, folder)
            scale_to_zero(running)
        growing = Queue(folder / "home" / "state.db")
        for rows in levels:
            print(f"  {rows:,} waiting", file=sys.stderr)
            growing.fill(rows)
            queues.append(growing.copy(folder / f"{rows}.db"))
            ends = rows in (levels[0], levels[-1])
            servers.append(over_backlog(folder, seconds, other_load) if ends else ({}, {}))
        spent = other_load.undisturbed(partial(measure_in_turns, queues, seconds))
        return [
            Level(rows, steps, queue.mebibytes(), *through_server)
            for rows, steps, queue, through_server in zip(
                levels, spent, queues, servers, strict=True
            )
        ]


def over_backlog(folder: Path, seconds: float, other_load: OtherLoad) -> tuple[Measured, Measured]:
    """Measures the server's memory, and how fast it accepts requests."""
    with server(folder) as running:
        through_server = other_load.undisturbed(partial(ask, running, seconds))
        return memory_of(running), through_server


def measure_in_turns(queues: Sequence["Queue"], seconds: float) -> list[Measured]:
    """Measures the time of each step in each queue, for `seconds` in each. Queues take turns, so
    that other load on the machine does not look like the length of a queue."""
    os.sync()  # What was filled in is not waited for.
    rounds: list[list[Measured]] = [[] for _ in queues]
    for queue in queues:
        queue.one_round()  # A connection is opened once.
    end = time.perf_counter() + seconds * len(queues)
    while not rounds[0] or time.perf_counter() < end:
        for queue, so_far in zip(queues, rounds, strict=True):
            so_far.append(queue.one_round())
    for queue in queues:
        queue.close()
    return [{step: usual([measured[step] for measured in of]) for step in of[0]} for of in rounds]


def usual(milliseconds: Sequence[float]) -> float:
    """The mean without the slowest one in twenty: the disk and the machine stall now and then.

    Not the median, which would not know that some commits take a checkpoint along.
    """
    return statistics.fmean(sorted(milliseconds)[: -(len(milliseconds) // 20) or None])


def ask(running: Server, seconds: float) -> Measured:
    return put_under_load(side(running), TEXTS, SENDERS, seconds)


def memory_of(running: Server) -> Measured:
    return {role: mib for (role, _), mib in Inside(running).memory_mib().items()}


class Queue:
    """The state of a server that does not run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = Database(f"sqlite:///{path}")

    def fill(self, rows: int) -> None:
        """Until so many wait; every second one has its text with it."""
        with self._database.read() as connection:
            missing = rows - async_requests.backlog(connection, NAME)[0]
        while missing > 0:
            some = min(missing, FILLED_AT_ONCE)
            with self._database.write() as connection:
                async_requests.enqueue(connection, make_requests(some))
            missing -= some
        self.close()

    def close(self) -> None:
        """All is in the one file then; it may be used again."""
        self._database.close()

    def copy(self, path: Path) -> "Queue":
        shutil.copy(self._path, path)
        return Queue(path)

    def one_round(self) -> Measured:
        """Milliseconds of each step; as many requests go out as come in."""
        spent = {}
        for step, work in steps().items():
            opened = self._database.read if step == "size" else self._database.write
            start = time.perf_counter()
            with opened() as connection:
                began = time.perf_counter()
                work(connection)
                spent[f"{step} alone"] = (time.perf_counter() - began) * 1000
            spent[step] = (time.perf_counter() - start) * 1000
        return spent

    def mebibytes(self) -> float:
        files = self._path.parent.glob(f"{self._path.name}*")
        return sum(file.stat().st_size for file in files) / 2**20


def steps() -> dict[str, Callable[[Connection], object]]:
    """Returns the steps by name; leased requests are ended."""
    requests, now = make_requests(AT_ONCE), time.time()
    leases: list[tuple[int, int]] = []

    def lease(connection: Connection) -> None:
        until = now + LEASE_SECONDS
        leased = async_leases.lease(connection, NAME, AT_ONCE, "benchmark", now, until)
        leases.extend((request.sequence, request.attempt) for request in leased)

    def end(connection: Connection) -> None:
        done = AsyncOutcome(state=AsyncState.SUCCEEDED, content_type="text/plain", status=200)
        for sequence, attempt in leases:
            async_leases.finish(connection, sequence, attempt, done, now)

    return {
        "enqueue": lambda connection: async_requests.enqueue(connection, requests),
        "lease": lease,
        "end": end,
        "size": lambda connection: async_requests.backlog(connection, NAME),
    }


def make_requests(count: int) -> list[tuple[AsyncRequest, bytes | None]]:
    """As InvokeEndpointAsync makes them of requests that bring no InferenceId; every second one has
    its text inline."""
    return [make_request(TEXTS[number % len(TEXTS)], number % 2 == 0) for number in range(count)]


def make_request(text: str, inline: bool) -> tuple[AsyncRequest, bytes | None]:
    now = time.time()
    request = AsyncRequest(
        request_id=str(uuid.uuid4()),
        inference_id=ordered_id(now),
        endpoint_name=NAME,
        received_at=now,
        expires_at=now + DEADLINE_SECONDS,
        timeout_seconds=900,
        output=OutputTarget(location=f"{OUTPUTS}/{uuid.uuid4()}.out"),
        input_location=None if inline else input_of(text),
        content_type="text/plain",
    )
    return request, text.encode() if inline else None
