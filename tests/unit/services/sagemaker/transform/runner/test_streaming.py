"""Whole objects as streams, through an HTTP container in this process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sagehen.services.sagemaker.transform.runner import reading
from sagehen.services.sagemaker.transform.runner.streaming import TOO_LARGE
from sagehen.services.sagemaker.transform.runner_messages import (
    Done,
    FailedObject,
    InstanceAddress,
    Progress,
    RunnerEnded,
    RunnerLog,
)
from support.transform_runs import Container, MemoryStore, TransformRun, make_spec

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readline()
    await reader.readline()


async def read_head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def answer(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers each chunk when it comes."""
    head = await read_head(reader)
    assert b"Content-Type: a/b\r\n" in head
    assert b"Transfer-Encoding: chunked\r\n" in head
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    async for chunk in read_chunks(reader):
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk.upper()))
    writer.write(b"0\r\n\r\n")


@asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[str]:
    handlers = []

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        try:
            await handle(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(closing, "127.0.0.1", 0)
    try:
        yield f"tcp:127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for handler in filter(None, handlers):
            handler.cancel()
        await asyncio.gather(*filter(None, handlers), return_exceptions=True)
        await asyncio.sleep(0)


async def run(job: TransformRun, handle: Handler, **changes: object) -> RunnerEnded:
    async with serving(handle) as address:
        runner = job.start(make_spec(**{**SPEC_FIELDS, **changes}), Container(nobody))
        runner.instances._connect = lambda *_: Container(nobody)
        runner.instances.update([InstanceAddress(instance_id="i", address=address)])
        async with asyncio.timeout(120):
            return await runner.run()


async def nobody(payload: bytes) -> bytes:
    raise AssertionError("a stream goes over a connection of its own")


SPEC_FIELDS = {
    "split_type": "None",
    "assemble_with": "None",
    "max_payload_mb": 0,
    "content_type": "a/b",
}


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FIRST_BYTES", 1000)
    monkeypatch.setattr(reading, "RANGE_BYTES", 5000)


@pytest.mark.parametrize("size", [0, 10, 123_456])
async def test_objects_of_any_size(job: TransformRun, store: MemoryStore, size: int) -> None:
    store.objects["in", "data/x"] = b"abc\n" * (size // 4)
    assert await run(job, upper) == RunnerEnded()
    assert store.outputs() == {"results/x.out": b"ABC\n" * (size // 4)}
    assert sum(done.records for done in job.of(Done)) == 1


@pytest.mark.parametrize("data", [b"abc", b"abc\n"])
async def test_assemble_with_line_ends_each_output(
    job: TransformRun, store: MemoryStore, data: bytes
) -> None:
    store.objects["in", "data/x"] = data
    assert await run(job, upper, assemble_with="Line") == RunnerEnded()
    assert store.outputs() == {"results/x.out": b"ABC\n"}


async def test_a_stream_that_breaks_begins_again(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"abc\n" * 30_000
    tries = 0

    async def break_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        if tries > 1:
            await upper(reader, writer)
            return
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhal\r\n")
        await anext(read_chunks(reader))

    assert await run(job, break_once, max_retries=0) == RunnerEnded()
    assert tries == 2
    assert store.outputs() == {"results/x.out": b"ABC\n" * 30_000}


async def test_a_refusal_before_the_body_is_read_is_heard(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"abc\n" * 300_000

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(answer(413, b"too much"))
        await writer.drain()
        async for _ in read_chunks(reader):
            pass

    assert await run(job, refuse) == RunnerEnded(error="ClientError")
    assert job.of(FailedObject)[0].message == "ClientError: 413"
    assert job.of(RunnerLog)[-1].line.endswith(TOO_LARGE)
    assert store.outputs() == {}


async def test_a_server_error_is_tried_again_and_then_told(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"abc"
    tries = 0

    async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        await read_head(reader)
        async for _ in read_chunks(reader):
            pass
        writer.write(answer(500, b"broken"))

    ended = await run(job, fail, max_retries=1, options={"MAX_FAILED_RECORDS": "1"})

    assert ended == RunnerEnded()
    assert tries == 2
    error = b'{"record":0,"status":500,"message":"broken"}\n'
    assert store.outputs() == {"results/x.errors.jsonl": error}
    assert job.of(Progress)[-1].records == sum(done.records for done in job.of(Done)) == 1


async def test_a_stream_that_stops_times_out(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"abc"

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        await asyncio.Event().wait()

    ended = await run(job, hang, timeout_seconds=0.05, max_retries=0)
    assert ended == RunnerEnded(error="AlgorithmError")


async def test_pipelines_are_refused(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"abc"
    runner = job.start(make_spec(**SPEC_FIELDS), *[Container(nobody)] * 2, is_pipeline=True)
    assert await asyncio.wait_for(runner.run(), 120) == RunnerEnded(error="ClientError")
    assert "pipeline" in job.of(FailedObject)[0].message
