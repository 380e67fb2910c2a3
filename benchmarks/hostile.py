"""A server's memory under hostile clients, and whether it answers others meanwhile.

Each load has a server of its own: resident memory of the gateways and of control before it, the
most under it, and 2 s after it; then what a client that only asks for `/_sagehen/health` got
meanwhile.

    python3 benchmarks/hostile.py --before ../old/src --save

`--before` measures the server of another checkout beside this one.
"""

import argparse
import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from frame import heading, keep, row_of, some
from machine import describe_machine
from sides import Server, server

ROLES = ("gateway", "control")
SAMPLE_SECONDS = 0.05
AFTER_SECONDS = 2.0
PROBE_SECONDS = 0.25
PROBE_TIMEOUT_SECONDS = 10.0
CONNECTS_AT_ONCE = 200
CONTROL_BODY = 4 * 2**20 - 10
INVOCATION_BODY = 25_000_000
OBJECT_BYTES = 200_000_000
PIECE = bytes(256 * 1024)


@dataclass
class Measured:
    """Memory in MiB by role."""

    before: dict[str, float] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    health: list[float | None] = field(default_factory=list)
    """Seconds that each answer took; None where there was none, or another than 200."""


class Attack:
    """The connections of one load."""

    def __init__(self, running: Server, scale: float) -> None:
        self.server = running
        self.scale = scale
        self._writers: list[asyncio.StreamWriter] = []
        self._connecting = asyncio.Semaphore(CONNECTS_AT_ONCE)

    def count(self, number: int) -> int:
        return max(1, round(number * self.scale))

    async def connect(self, *pieces: bytes) -> None:
        """A connection that sends `pieces`, and reads nothing."""
        host, port = self.server.address
        try:
            async with self._connecting:
                # So little is read ahead that an unread answer stays with the server.
                _, writer = await asyncio.open_connection(host, port, limit=1024)
            self._writers.append(writer)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
        except OSError:
            return  # The server would not have it.

    async def many(self, count: int, *pieces: bytes) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self.count(count)):
                group.create_task(self.connect(*pieces))

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


def head(path: str, size: int, fields: dict[str, str] | None = None) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in (fields or {}).items())
    return f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n{lines}\r\n".encode()


def pieces_of(size: int) -> list[bytes]:
    whole, rest = divmod(size, len(PIECE))
    return [PIECE] * whole + [PIECE[:rest]]


JSON = {"X-Amz-Target": "SageMaker.ListModels", "Content-Type": "application/x-amz-json-1.1"}


async def idle(attack: Attack) -> None:
    await attack.many(5000)


async def slow_heads(attack: Attack) -> None:
    await attack.many(2500, b"GET /b/k HTTP/1.1\r\nHost: h\r\nX-A: ")


async def half_bodies(attack: Attack) -> None:
    await attack.many(4900, head("/", 2000, JSON) + bytes(1000))


async def control_bodies(attack: Attack) -> None:
    await attack.many(200, head("/", CONTROL_BODY + 10, JSON), *pieces_of(CONTROL_BODY))


async def control_bodies_of_a_key(attack: Attack) -> None:
    """The access key id is known, its secret is not."""
    signed = attack.server.signed("/", JSON, "").partition(b"\r\n\r\n")[0].decode().split("\r\n")
    other_lines = [line for line in signed[1:] if not line.lower().startswith("content-length")]
    length = CONTROL_BODY + 10
    begun = "\r\n".join([signed[0], *other_lines, f"Content-Length: {length}", "", ""]).encode()
    await attack.many(200, begun, *pieces_of(CONTROL_BODY))


async def invocation_bodies(attack: Attack) -> None:
    begun = head("/endpoints/e/invocations", INVOCATION_BODY + 10)
    await attack.many(60, begun, *pieces_of(INVOCATION_BODY))


async def pipelined(attack: Attack) -> None:
    request = head("/endpoints/e/invocations", 3) + b"1,2"
    await attack.many(10, request * attack.count(900))


async def slow_readers(attack: Attack) -> None:
    s3 = attack.server.client("s3")
    s3.create_bucket(Bucket="large")
    s3.put_object(Bucket="large", Key="k", Body=bytes(attack.count(OBJECT_BYTES)))
    url = s3.generate_presigned_url("get_object", {"Bucket": "large", "Key": "k"})
    path = url.removeprefix(attack.server.url)
    host = attack.server.url.removeprefix("http://")
    await attack.many(50, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


LOADS: dict[str, tuple[str, Callable[[Attack], Awaitable[None]]]] = {
    "idle": ("5,000 idle connections", idle),
    "heads": ("2,500 heads that never end", slow_heads),
    "half": ("4,900 half bodies to control, unsigned", half_bodies),
    "control": ("200 x 4 MiB - 10 bytes to control, unsigned", control_bodies),
    "key": ("the same, with a known access key id", control_bodies_of_a_key),
    "invocations": ("60 x 25 MB invocations, unsigned", invocation_bodies),
    "pipelined": ("9,000 invocations on 10 connections, answers unread", pipelined),
    "readers": ("50 clients that do not read a 200 MB object", slow_readers),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, help="the `src` of another checkout")
    parser.add_argument("--only", type=some(list(LOADS)), default=list(LOADS))
    parser.add_argument("--scale", type=float, default=1.0, help="of each load: to try it out")
    parser.add_argument("--seconds", type=float, default=5.0, help="each load is held for so long")
    parser.add_argument("--save", action="store_true", help="keep what is printed")
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sides = {"before": arguments.before, "now": None} if arguments.before else {"now": None}
    results = {
        (name, side): measure(LOADS[name][1], source, arguments.scale, arguments.seconds)
        for name in arguments.only
        for side, source in sides.items()
    }
    text = report(results, hard)
    print(text)
    if arguments.save:
        keep(text, "hostile")


def measure(
    load: Callable[[Attack], Awaitable[None]], source: Path | None, scale: float, seconds: float
) -> Measured:
    with (
        tempfile.TemporaryDirectory(prefix="sgh-") as folder,
        from_source(source),
        server(Path(folder)) as running,
    ):
        return asyncio.run(under(Attack(running, scale), load, seconds))


@contextmanager
def from_source(source: Path | None) -> Iterator[None]:
    """Makes processes that start in the block import from there."""
    if source is None:
        yield
        return
    former = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(source.resolve())
    try:
        yield
    finally:
        if former is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = former


async def under(
    attack: Attack, load: Callable[[Attack], Awaitable[None]], seconds: float
) -> Measured:
    measured = Measured(before=memory(attack.server))
    watching = asyncio.create_task(watch(attack.server, measured))
    attacking = asyncio.create_task(load(attack))
    await asyncio.sleep(0.5)
    probing = asyncio.create_task(probe(attack.server, measured))
    # One whose bodies are not read may never have sent them all.
    await asyncio.wait([attacking], timeout=max(5, seconds))
    await asyncio.sleep(seconds)
    for task in (probing, watching, attacking):
        task.cancel()
    await asyncio.gather(probing, watching, attacking, return_exceptions=True)
    attack.close()
    await asyncio.sleep(AFTER_SECONDS)
    measured.after = memory(attack.server)
    return measured


async def watch(running: Server, measured: Measured) -> None:
    while True:
        for role, size in memory(running).items():
            measured.most[role] = max(size, measured.most.get(role, 0))
        await asyncio.sleep(SAMPLE_SECONDS)


async def probe(running: Server, measured: Measured) -> None:
    while True:
        measured.health.append(await ask_health(running))
        await asyncio.sleep(PROBE_SECONDS)


async def ask_health(running: Server) -> float | None:
    began = time.monotonic()
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(*running.address)
            writer.write(b"GET /_sagehen/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            first = await reader.readline()
            writer.close()
    except OSError:  # TimeoutError is one
        return None
    return time.monotonic() - began if b" 200 " in first else None


def memory(running: Server) -> dict[str, float]:
    """Resident, in MiB, of all processes of each role."""
    sizes = dict.fromkeys(ROLES, 0.0)
    for process in psutil.Process(running.pid).children():
        for role in ROLES:
            # With --before, the module may be in another package.
            if any(word.endswith(f".roles.{role}") for word in process.cmdline()):
                sizes[role] += process.memory_info().rss / 2**20
    return sizes


def report(results: dict[tuple[str, str], Measured], files: int) -> str:
    lines = heading("Hostile clients")
    lines += describe_machine(("sagehen", "uvloop", "httptools", "uvicorn"))
    lines += [
        f"- `ulimit -n` {files:,}; resident memory in MiB, before → most under load → 2 s after",
        "",
        row_of(("load", "server", "gateways", "control", "health answered", "slowest, ms")),
        "|---|---|---|---|---|---|",
    ]
    for (name, side), measured in results.items():
        lines.append(
            row_of((LOADS[name][0], side, *memory_cells(measured), *health_cells(measured)))
        )
    return "\n".join([*lines, ""])


def memory_cells(measured: Measured) -> Sequence[str]:
    return [
        " → ".join(
            f"{mib_by_role.get(role, 0):.0f}"
            for mib_by_role in (measured.before, measured.most, measured.after)
        )
        for role in ROLES
    ]


def health_cells(measured: Measured) -> Sequence[str]:
    answered = [seconds for seconds in measured.health if seconds is not None]
    slowest = f"{1000 * max(answered):.0f}" if answered else ""
    return f"{len(answered)} of {len(measured.health)}", slowest


if __name__ == "__main__":
    main()
