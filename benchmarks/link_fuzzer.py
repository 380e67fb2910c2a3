"""Hostile peers of a link: random and mutated frames for a real model server and a real gateway.

    python3 benchmarks/link_fuzzer.py [--seconds 60] [--seed 7] [--sides server,gateway] [--save]

The model server is a process of its own with a script as its model. Hostile gateways send it
streams of frames, mutated, cut anywhere and broken off anywhere; meanwhile an honest one calls.

The gateway is a process of its own with two endpoints. The container of one is hostile, that of the
other honest. Callers of the hostile one must get one answer or the end of their connection within
the time-out; callers of the honest one must get their own answers, always.

In the end each must have nothing left: no request in flight, an orderly end, no exception in its
log, memory as before. Exit status 1 otherwise.
"""

import asyncio
import itertools
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from frame import heading, keep, options, row_of, some
from link_mutations import answers_to, cut, mutated, requests, welcome
from machine import describe_machine

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from sagehen.base.clock import SYSTEM
from sagehen.link.client import LinkClient
from sagehen.link.frames import (
    ANSWER,
    CANCEL,
    DATA,
    HELLO,
    LARGE_REQUEST,
    PREFACE,
    REQUEST,
    SLOTS,
    VERSION,
    WELCOME,
    FrameReader,
    encode_frame,
    encode_settings,
)
from support.fixtures.gateway import House
from support.gateway_peers import Client
from support.links import Request

HERE = Path(__file__).parent
HOSTILE_PEERS = 6
CALLERS = 12
HANG_SECONDS = 30.0
TIMEOUT_SECONDS = 2.0
"""of the gateway's invocations"""
MEMORY_MEBIBYTES = 64
"""more than this, kept in the end, is a leak"""
TROUBLE = re.compile(
    r"(?<!The model's code raised\.\n)Traceback|Fatal error|never retrieved|Exception in callback"
)
SCRIPT = """
def model_fn(folder): return None
def transform_fn(model, data, content_type, accept): return data, "text/csv"
"""
Told = Counter[str]


def main() -> None:
    parser = options(__doc__, seconds=60)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--sides", type=some(["server", "gateway"]), default=["server", "gateway"])
    arguments = parser.parse_args()
    lines = [*heading("A fuzzer of the link"), *describe_machine(("sagehen",), load=False)]
    lines += [f"- seed {arguments.seed}, {arguments.seconds:.0f} s for each side", ""]
    faults = 0
    for side in arguments.sides:
        told = asyncio.run(SIDES[side](arguments.seconds, random.Random(arguments.seed)))
        found = sum(count for name, count in told.items() if name.startswith("FAULT"))
        faults += found
        lines += [f"| {side} | |", "|---|---|"]
        lines += [row_of([name, f"{count:,}"]) for name, count in sorted(told.items())]
        lines += ["", f"- {side}: {found} faults, target none: {'MISSED' if found else 'met'}", ""]
    report = "\n".join(lines)
    print(report)
    if arguments.save:
        keep(report, "link-fuzzer")
    sys.exit(1 if faults else 0)


# A process under test


class Tested:
    """A process of ours, its memory and its log."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log
        self._program = psutil.Process(process.pid)
        self.before = 0.0
        self.most = 0.0

    @property
    def mebibytes(self) -> float:
        with suppress(psutil.Error):
            self.most = max(self.most, self._program.memory_info().rss / 2**20)
            return self._program.memory_info().rss / 2**20
        return 0.0

    async def end(self, told: Told) -> None:
        """In order, and within a time that waits for nothing which was left behind."""
        left = self.mebibytes
        told["MiB before"], told["MiB at most"] = round(self.before), round(self.most)
        told["MiB in the end"] = round(left)
        if left > self.before + MEMORY_MEBIBYTES:
            told["FAULT: memory is kept"] += 1
        if self.process.returncode is not None:
            told[f"FAULT: crashed with {self.process.returncode}"] += 1
        else:
            self.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(60):
                    await self.process.wait()
            told["ms to its end"] = round(1000 * (time.monotonic() - began))
            if self.process.returncode != 0:
                told[f"FAULT: ended with {self.process.returncode}"] += 1
            if time.monotonic() - began > 20:
                told["FAULT: requests were left"] += 1
        if self.process.returncode is None:
            self.process.kill()
        text = self._log.read_text(errors="replace")
        if found := TROUBLE.findall(text):
            told["FAULT: exceptions in the log"] += len(found)
            at = text.index(found[0])
            print(text[max(0, at - 500) : at + 3000], file=sys.stderr)


@asynccontextmanager
async def folder_for(name: str) -> AsyncIterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"sg-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# The model server, and hostile gateways


async def fuzz_server(seconds: float, rng: random.Random) -> Told:
    told: Told = Counter()
    async with folder_for("server") as folder:
        code = folder / "model" / "code"
        code.mkdir(parents=True)
        (code / "inference.py").write_text(SCRIPT)
        address = folder / "s.sock"
        tested = await _start_server(folder, address)
        client = LinkClient(f"link:{address}", SYSTEM)
        await _honest_call(client, told, b"0")
        tested.before = tested.mebibytes
        ending = asyncio.Event()
        tasks = [
            asyncio.create_task(
                _hostile_gateway(address, random.Random(rng.random()), told, ending)
            )
            for _ in range(HOSTILE_PEERS)
        ]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and tested.process.returncode is None:
            await _honest_call(client, told, rng.randbytes(rng.choice((10, 200_000))))
            assert tested.mebibytes >= 0
        ending.set()
        await asyncio.gather(*tasks)
        await _honest_call(client, told, b"1")
        client.close()
        await asyncio.sleep(1)  # the last streams end
        await tested.end(told)
    return told


async def _start_server(folder: Path, address: Path) -> Tested:
    environ = {
        "PATH": os.environ["PATH"],
        "SAGEMAKER_BASE_DIR": str(folder),
        "SAGEHEN_ADAPTER": "python",
        "SAGEHEN_BIND": f"unix:{address}",
        "SAGEMAKER_MODEL_SERVER_WORKERS": "2",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    log = folder / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sagehen.containers.modelserver", env=environ, stderr=output
        )
    async with asyncio.timeout(60):
        while b"Loaded" not in log.read_bytes():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return Tested(process, log)


async def _honest_call(client: LinkClient, told: Told, body: bytes) -> None:
    request = Request(client, body)
    began = time.monotonic()
    while not (request.is_answered or request.is_broken or request.was_refused):
        await asyncio.sleep(0.001)
        if time.monotonic() > began + HANG_SECONDS:
            told["FAULT: an honest call hangs"] += 1
            return
    told["honest calls"] += 1
    told["slowest honest call, ms"] = max(
        told["slowest honest call, ms"], round(1000 * (time.monotonic() - began))
    )
    if request.status == 503:
        told["honest calls: queue full"] += 1  # hostile gateways may fill it
    elif (request.status, request.body) != (200, body):
        told["FAULT: a wrong answer to an honest call"] += 1


async def _hostile_gateway(
    address: Path, rng: random.Random, told: Told, ending: asyncio.Event
) -> None:
    while not ending.is_set():
        try:
            reader, writer = await asyncio.open_unix_connection(str(address))
        except OSError:
            return
        hello = encode_settings(HELLO, {"versions": [VERSION], "begun": None})
        frames = mutated([hello, *requests(rng)] if rng.random() < 0.3 else requests(rng), rng)
        data = b"".join(frames if frames and frames[0] == hello else [hello, *frames])
        told["links to the model server"] += 1
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(5):
                for piece in cut((PREFACE if rng.random() < 0.98 else b"SAGE") + data, rng):
                    writer.write(piece)
                    await asyncio.sleep(0)
                await _read_for_a_while(reader, rng)
        writer.transport.abort()


async def _read_for_a_while(reader: asyncio.StreamReader, rng: random.Random) -> None:
    if rng.random() < 0.3:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(rng.choice((0.001, 0.05, 0.3))):
            while await reader.read(2**18):
                pass


# The gateway, a hostile container and an honest one


class _HostileContainer(asyncio.Protocol):
    def __init__(self, rng: random.Random, told: Told) -> None:
        self._rng = rng
        self._told = told
        self._reader = FrameReader()
        self._numbers: list[int] = []
        self._is_first = True

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._told["links to the hostile container"] += 1
        # Behind half a frame, nothing more would be understood.
        seconds = self._rng.choice((0.01, 0.1, 0.1, 0.5))
        asyncio.get_running_loop().call_later(seconds, transport.abort)
        if self._rng.random() < 0.05:
            self._flood(encode_frame(self._rng.choice((SLOTS, CANCEL, DATA)), 3) * 10_000)

    def data_received(self, data: bytes) -> None:
        rng = self._rng
        if self._is_first:
            self._is_first = False
            data = data.removeprefix(PREFACE)
            self._write(mutated([welcome(rng)], rng) if rng.random() < 0.2 else [welcome(rng)])
        for kind, _, number, _, _, _ in self._reader.feed(data):
            if kind in (REQUEST, LARGE_REQUEST):
                self._numbers.append(number)
        while self._numbers and rng.random() < 0.95:
            number = self._numbers.pop(rng.randrange(len(self._numbers)))
            self._write(mutated(answers_to(rng, number, b"hostile"), rng))
        chance = rng.random()
        if chance < 0.02:
            self._transport.abort()
        elif chance < 0.03:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(3, self._resume)

    def _flood(self, frames: bytes) -> None:
        """Without an end, as fast as they are read."""
        if self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() < len(frames) and not self._is_first:
            self._transport.write(frames)
        asyncio.get_running_loop().call_later(0.001, self._flood, frames)

    def _resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _write(self, frames: list[bytes]) -> None:
        for piece in cut(b"".join(frames), self._rng):
            if piece and not self._transport.is_closing():
                self._transport.write(piece)


class _HonestContainer(asyncio.Protocol):
    """Answers each request with its own body."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._reader = FrameReader()
        transport.write(encode_settings(WELCOME, {"version": VERSION, "marks": False}))

    def data_received(self, data: bytes) -> None:
        for kind, _, number, _, _, body in self._reader.feed(data.removeprefix(PREFACE)):
            if kind == REQUEST:
                self._transport.write(encode_frame(ANSWER, number, b"", body, 200))


async def fuzz_gateway(seconds: float, rng: random.Random) -> Told:
    told: Told = Counter()
    loop = asyncio.get_running_loop()
    async with folder_for("gateway") as folder:
        run = folder / "containers"
        run.mkdir()
        containers = [
            await loop.create_unix_server(
                lambda: _HostileContainer(random.Random(rng.random()), told), run / "hostile"
            ),
            await loop.create_unix_server(_HonestContainer, run / "honest"),
        ]
        log = folder / "log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(HERE / "link_fuzzer_gateway.py"),
                str(folder / "home"),
                str(run),
                str(TIMEOUT_SECONDS),
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        assert process.stdout is not None
        host = (await process.stdout.readline()).decode().strip()
        tested = Tested(process, log)
        signer = House.__new__(House)  # it only signs
        signer.host = host
        await _call(signer, "honest", b"0", told)
        tested.before = tested.mebibytes
        numbers, deadline = itertools.count(1), time.monotonic() + seconds
        await asyncio.gather(
            *(
                _keep_calling(signer, name, numbers, deadline, told, tested)
                for name in ["hostile"] * CALLERS + ["honest"] * 2
            )
        )
        await asyncio.sleep(2 * TIMEOUT_SECONDS)  # what was left by its callers is over by then
        await _call(signer, "honest", b"1", told)
        await tested.end(told)
        outstanding = await process.stdout.read()
        if outstanding.strip() != b"outstanding 0":
            told[f"FAULT: in flight in the end: {outstanding!r}"] += 1
        for container in containers:
            container.close()
    return told


async def _keep_calling(
    signer: House, name: str, numbers: Any, deadline: float, told: Told, tested: Tested
) -> None:
    while time.monotonic() < deadline and tested.process.returncode is None:
        number = next(numbers)
        large = name == "hostile" and number % 20 == 0
        await _call(signer, name, b"%d" % number + bytes(300_000 if large else 0), told)
        assert tested.mebibytes >= 0


async def _call(signer: House, name: str, body: bytes, told: Told) -> None:
    """On a connection of its own, with a second request behind it."""
    address, _, port = signer.host.partition(":")
    began = time.monotonic()
    path = f"/endpoints/{name}/invocations"
    statuses = []
    try:
        async with asyncio.timeout(HANG_SECONDS):
            client = Client(*await asyncio.open_connection(address, int(port)))
            for part in (body, body + b"again"):
                client.send(signer.signed(part, path=path))
                answer = await client.answer()
                statuses.append(str(answer.status))
                if name == "honest" and (answer.status, answer.body) != (200, part):
                    told["FAULT: a wrong answer to an honest call"] += 1
            client.close()
    except TimeoutError:
        told[f"FAULT: a call of the {name} container hangs"] += 1
    except (OSError, asyncio.IncompleteReadError):
        statuses.append("cut off")
    except (ValueError, IndexError) as error:
        if client.reader.at_eof():
            statuses.append("cut off")  # between two chunks
        else:
            told[f"FAULT: what came back is no HTTP: {error!r}"] += 1
    for status in statuses:
        told[f"{name}: {status}"] += 1
        if name == "honest" and status != "200":
            told["FAULT: an honest call was not answered"] += 1
    if name == "honest":
        took = round(1000 * (time.monotonic() - began))
        told["slowest honest call, ms"] = max(told["slowest honest call, ms"], took)


SIDES = {"server": fuzz_server, "gateway": fuzz_gateway}

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
