"""Whole jobs with records that fail, and may."""

import json

import pytest

from sagehen.services.sagemaker.transform.runner_messages import (
    Done,
    RunnerEnded,
)
from support.transform_runs import Container, MemoryStore, TransformRun, make_spec


async def test_failed_records_are_told_beside_the_output(
    job: TransformRun, store: MemoryStore
) -> None:
    lines = [b"bad" if number in (3, 40) else b"%d" % number for number in range(100)]
    store.objects["in", "data/x"] = b"\n".join(lines)

    async def refuse_bad(payload: bytes) -> bytes | tuple[int, bytes]:
        return (400, b"not a number: bad") if b"bad" in payload else payload

    container = Container(refuse_bad)
    ended = await job.run(make_spec(options={"MAX_FAILED_RECORDS": "2%"}), container)

    assert ended == RunnerEnded()
    good = [line for line in lines if line != b"bad"]
    error = b'{"record":%d,"status":400,"message":"not a number: bad"}\n'
    assert store.outputs() == {
        "results/x.out": b"\n".join(good) + b"\n",
        "results/x.errors.jsonl": error % 3 + error % 40,
    }
    assert len(container.payloads) < 4 * 7 + 1
    assert sum(done.failed_records for done in job.of(Done)) == 2
    assert sum(done.records for done in job.of(Done)) == 100


async def test_the_error_of_a_record_is_told_without_the_servers_traceback(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"1\nbad\n"

    async def raise_at_bad(payload: bytes) -> bytes | tuple[int, bytes]:
        told = b"could not convert string to float: 'bad'\nTraceback (most recent call last):\n  x"
        return (500, told) if b"bad" in payload else payload

    spec = make_spec(options={"MAX_FAILED_RECORDS": "1"})
    await job.run(spec, *[Container(raise_at_bad)])
    (line,) = store.outputs()["results/x.errors.jsonl"].splitlines()
    assert json.loads(line) == {
        "record": 1,
        "status": 500,
        "message": "could not convert string to float: 'bad'",
    }


async def test_too_many_failed_records_fail_the_job(job: TransformRun, store: MemoryStore) -> None:
    store.objects["in", "data/x"] = b"a\nbad\nc"

    async def refuse_bad(payload: bytes) -> bytes | tuple[int, bytes]:
        return (422, b"") if b"bad" in payload else payload

    spec = make_spec(options={"MAX_FAILED_RECORDS": "1"}, done_records=10, failed_records=1)
    ended = await job.run(spec, Container(refuse_bad))

    assert ended.error == "ClientError"
    assert ended.message.startswith("2 of 13 records failed, more than the 1 that ")
    assert store.outputs().keys() == {"results/x.out", "results/x.errors.jsonl"}


@pytest.mark.parametrize(("tolerated", "most_requests"), [("3", 30), ("1%", 2500)])
async def test_the_search_ends_when_too_many_have_failed(
    job: TransformRun, store: MemoryStore, tolerated: str, most_requests: int
) -> None:
    store.objects["in", "data/x"] = b"bad\n" * 5000

    async def refuse(payload: bytes) -> tuple[int, bytes]:
        return 400, b""

    container = Container(refuse)
    ended = await job.run(make_spec(options={"MAX_FAILED_RECORDS": tolerated}), container)

    assert ended == RunnerEnded(error="ClientError")
    assert len(container.payloads) < most_requests
    assert store.outputs() == {}


async def test_an_object_of_failed_records_only_has_no_output(
    job: TransformRun, store: MemoryStore
) -> None:
    store.objects["in", "data/x"] = b"bad"

    async def refuse(payload: bytes) -> tuple[int, bytes]:
        return 400, b""

    await job.run(make_spec(options={"MAX_FAILED_RECORDS": "100%"}), Container(refuse))
    assert store.outputs().keys() == {"results/x.errors.jsonl"}
