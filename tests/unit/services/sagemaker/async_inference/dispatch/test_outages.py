"""Stores, disks and databases that are away or full: what was answered is not asked again."""

import errno

import pytest
from aiohttp import web
from sqlalchemy.exc import OperationalError

from sagehen.base.errors import Unavailable
from sagehen.services.s3.storage import files
from sagehen.services.sagemaker.async_inference.records import AsyncState, OutputTarget
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit

LARGE = b"x" * 20_000
"""More than an object may have to be a row."""


async def test_a_store_that_is_away_loses_nothing(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(input_location=bench.put("a", b"x" * 100_000))
    put, opened = bench.objects.put, bench.objects.open
    until = bench.clock.now() + 60

    def away(work):
        def call(*given):
            if bench.clock.now() < until:
                raise Unavailable("The object store failed: away")
            return work(*given)

        return call

    monkeypatch.setattr(bench.objects, "open", away(opened))
    monkeypatch.setattr(bench.objects, "put", discarding(away(put)))
    await bench.work()
    until = bench.clock.now() + 60
    bench.enqueue(b"y" * 200_000)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert bench.outputs() == ["0000.out", "0001.out"]
    assert bench.object("0001.out")[0] == b"y" * 400_000
    assert len(container.got) == 2, "an answer is kept while it cannot be written"
    assert list((bench.home.objects / "drafts").iterdir()) == []


def discarding(put):
    """As every store does with what it cannot keep."""

    def call(bucket, key, draft, attributes):
        try:
            return put(bucket, key, draft, attributes)
        except Unavailable:
            draft.discard()
            raise

    return call


@pytest.mark.parametrize("size", [10_000, 100_000, 450_000])
async def test_a_full_disk_makes_nobody_be_asked_again(bench, monkeypatch, size) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"x" * size)
    until = bench.clock.now() + 60
    leave_reserve = files._leave_reserve

    def full(folder) -> None:
        if bench.clock.now() < until:
            raise OSError(errno.ENOSPC, "full")
        leave_reserve(folder)

    monkeypatch.setattr(files, "_leave_reserve", full)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert bench.object("0000.out")[0] == b"x" * size * 2
    assert len(container.got) == 1
    assert list((bench.home.objects / "drafts").iterdir()) == []


async def test_a_disk_that_stays_full_fails_what_was_answered(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"x" * 100_000)

    def full(folder) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(files, "_leave_reserve", full)
    await bench.work()
    ended = bench.get(sequence)
    assert ended.state is AsyncState.FAILED
    assert "could not be kept: The disk" in ended.outcome.failure_reason
    assert len(container.got) == 1


async def test_a_store_that_stays_away_fails_the_request(bench, monkeypatch) -> None:
    await bench.container()
    bench.serve()

    def away(*_: object) -> None:
        raise Unavailable("The object store failed: away")

    monkeypatch.setattr(bench.objects, "put", away)
    sequence = bench.enqueue(LARGE)
    await bench.work()
    ended = bench.get(sequence)
    assert ended.state is AsyncState.FAILED
    assert "s3://outs/0000.out: The object store failed: away" in ended.outcome.failure_reason
    assert ended.outcome.location is None
    assert bench.counted("ResponseUploadFailures") == [1, 1]
    assert len(bench.notices) == 1


async def test_a_database_that_is_away_for_minutes_makes_nobody_be_asked_again(
    bench, monkeypatch
) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    answer = container.answer
    until = 0.0

    async def answer_and_away(request: web.Request) -> web.StreamResponse:
        nonlocal until
        until = bench.clock.now() + 120
        return await answer(request)

    container.answer = answer_and_away
    write = Database.write

    def away(database):
        if bench.clock.now() < until:
            raise OperationalError("", {}, Exception("away"))
        return write(database)

    monkeypatch.setattr(Database, "write", away)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert len(container.got) == 1


async def test_an_input_that_cannot_be_read_with_its_lease_stops_nobody(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    location = bench.put("a", b"1")
    sequences = [bench.enqueue(b"1"), bench.enqueue(input_location=location)]

    def broken(*_):
        raise KeyError("broken")

    monkeypatch.setattr(bench.objects, "read_rows", broken)
    await bench.work()
    assert [bench.get(one).state for one in sequences] == ["SUCCEEDED", "SUCCEEDED"]
    assert len(container.got) == 2


async def test_a_bucket_that_is_gone_is_not_waited_for(bench) -> None:
    await bench.container()
    bench.serve()
    before = bench.clock.now()
    sequence = bench.enqueue(
        b"1", output=OutputTarget(location="s3://gone/x", error_topic="arn:bad")
    )
    await bench.work()
    assert "There is no bucket gone" in bench.get(sequence).outcome.failure_reason
    assert bench.clock.now() == before


async def test_a_database_that_is_away_for_a_while(bench, monkeypatch) -> None:
    await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    join = GroupCommit.join
    failing = iter([False, True, True, True])

    async def away(self, work):
        if next(failing, False):
            raise OperationalError("away", None, Exception())
        return await join(self, work)

    monkeypatch.setattr(GroupCommit, "join", away)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert len(bench.notices) == 1
