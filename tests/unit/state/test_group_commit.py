"""Grouped writes: each is done or undone alone, and all that came are committed."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from sagehen.base.errors import Conflict, StateFull
from sagehen.services.s3 import object_rows as rows
from sagehen.services.s3.storage.records import Bucket
from sagehen.state.database import Database
from sagehen.state.group_commit import CoalescingWriter, GroupCommit


def names(database: Database) -> set[str]:
    with database.read() as connection:
        return {bucket.name for bucket in rows.list_buckets(connection)}


def test_many_threads_write(database: Database) -> None:
    writes = GroupCommit(database)

    def write(number: int) -> None:
        def work(connection: Connection) -> None:
            rows.insert_bucket(connection, Bucket(f"b{number}", 0))
            if number % 3 == 0:
                raise Conflict("undo")

        if number % 3:
            writes.run(work)
            assert f"b{number}" in names(database), "on disk when it returns"
        else:
            with pytest.raises(Conflict):
                writes.run(work)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(database) == {f"b{number}" for number in range(100) if number % 3}


def test_a_commit_that_fails_fails_for_all_of_the_group(database: Database) -> None:
    writes = GroupCommit(database)

    def end_early(connection: Connection) -> None:
        rows.insert_bucket(connection, Bucket("lost", 0))
        connection.execute(text("ROLLBACK"))

    with pytest.raises(Exception, match="no such savepoint"):
        writes.run(end_early)
    writes.run(lambda connection: rows.insert_bucket(connection, Bucket("kept", 0)))
    assert names(database) == {"kept"}


async def test_coroutines_share_a_commit(database: Database) -> None:
    writes = GroupCommit(database)

    def work(number: int) -> Callable[[Connection], int]:
        def insert(connection: Connection) -> int:
            rows.insert_bucket(connection, Bucket(f"b{number}", 0))
            if number % 3 == 0:
                raise Conflict("undo")
            return number

        return insert

    came = await asyncio.gather(
        *(writes.join(work(number)) for number in range(300)), return_exceptions=True
    )
    kept = [number for number in range(300) if number % 3]
    assert [one for one in came if isinstance(one, int)] == kept
    assert names(database) == {f"b{number}" for number in kept}
    writes.close()


async def test_who_is_cancelled_harms_nobody(database: Database) -> None:
    writes = GroupCommit(database)
    begun, go_on = threading.Event(), threading.Event()

    def first(_: Connection) -> None:
        begun.set()
        go_on.wait(120)

    def insert(name: str) -> Callable[[Connection], object]:
        return lambda connection: rows.insert_bucket(connection, Bucket(name, 0))

    running = asyncio.create_task(writes.join(first))
    await asyncio.to_thread(begun.wait)
    cancelled = asyncio.create_task(writes.join(insert("cancelled")))
    kept = asyncio.create_task(writes.join(insert("kept")))
    await asyncio.sleep(0)
    running.cancel()
    cancelled.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await kept
    assert names(database) == {"kept"}
    writes.close()


def test_who_waits_for_each_other_is_done_again(postgres: Database) -> None:
    writes = GroupCommit(postgres)
    rows_of = "SELECT name FROM buckets WHERE name = '{}' FOR UPDATE"
    with postgres.write() as connection:
        for name in ("circle-a", "circle-b"):
            rows.insert_bucket(connection, Bucket(name, 0))
    both = threading.Barrier(2)
    tries: list[tuple[str, ...]] = []

    def lock(*names: str) -> Callable[[Connection], str]:
        def work(connection: Connection) -> str:
            connection.execute(text(rows_of.format(names[0])))
            if names not in tries:
                tries.append(names)
                both.wait(120)
            connection.execute(text(rows_of.format(names[1])))
            return "done"

        return work

    others = GroupCommit(postgres)
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(writes.run, lock("circle-a", "circle-b"))
        other = threads.submit(others.run, lock("circle-b", "circle-a"))
        assert (one.result(), other.result()) == ("done", "done")


def test_the_databases_own_trouble_is_everybodys(database: Database) -> None:
    writes = GroupCommit(database)

    def fill(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")
        for number in range(1000):
            rows.insert_bucket(connection, Bucket(f"{number}-" + "x" * 1000, 0))

    with pytest.raises(StateFull, match="full"):
        writes.run(fill)
    assert names(database) == set()


class Written:
    """Writes buckets by their names, and keeps the batches."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.batches: list[list[str]] = []

    def __call__(self, connection: Connection, names: Sequence[str]) -> list[str]:
        self.batches.append(list(names))
        for name in names:
            rows.insert_bucket(connection, Bucket(name, 0))
            if name == "bad":
                raise Conflict("bad")
            if name == "away":
                raise OperationalError("INSERT", {}, Exception("away"))
            if name == "full":
                raise StateFull("full")
        return [name.upper() for name in names]

    @property
    def names(self) -> list[str]:
        with self.database.read() as connection:
            return [bucket.name for bucket in rows.list_buckets(connection)]


async def test_what_waits_goes_together(database: Database) -> None:
    writes, written = GroupCommit(database), Written(database)
    writer = CoalescingWriter(writes, written)
    names = [f"b{number:03}" for number in range(200)]
    results = await asyncio.gather(*(writer.put(name) for name in names))
    writes.close()
    assert results == [name.upper() for name in names]
    assert written.names == names
    assert [len(batch) for batch in written.batches] == [128, 72]


async def test_one_at_fault_is_alone(database: Database) -> None:
    writes, written = GroupCommit(database), Written(database)
    writer = CoalescingWriter(writes, written)
    given = (writer.put(name) for name in ("a", "bad", "b"))
    first, bad, last = await asyncio.gather(*given, return_exceptions=True)
    writes.close()
    assert (first, last) == ("A", "B")
    assert isinstance(bad, Conflict)
    assert written.names == ["a", "b"]


@pytest.mark.parametrize(("why", "error"), [("away", OperationalError), ("full", StateFull)])
async def test_a_database_that_is_away_is_so_for_all(
    database: Database, why: str, error: type[Exception]
) -> None:
    writes, written = GroupCommit(database), Written(database)
    writer = CoalescingWriter(writes, written)
    given = (writer.put(name) for name in ("a", why, "b"))
    results = await asyncio.gather(*given, return_exceptions=True)
    assert [type(result) for result in results] == [error] * 3
    assert len(written.batches) == 1
    assert await writer.put("c") == "C", "it is tried again"
    writes.close()
    assert written.names == ["c"]


async def test_who_does_not_wait_any_more_is_left_out(database: Database) -> None:
    writes, written = GroupCommit(database), Written(database)
    writer = CoalescingWriter(writes, written)
    waits, goes = (asyncio.ensure_future(writer.put(name)) for name in ("a", "b"))
    await asyncio.sleep(0)
    goes.cancel()
    assert await waits == "A"
    with pytest.raises(asyncio.CancelledError):
        await goes
    writes.close()
    assert written.names == ["a"]


async def test_only_what_is_on_disk_is_announced(database: Database) -> None:
    writes, written = GroupCommit(database), Written(database)
    announced: list[list[str]] = []

    def announce(results: Sequence[str]) -> None:
        assert {name.upper() for name in written.names} >= set(results)
        announced.append(list(results))

    writer = CoalescingWriter(writes, written, announce, max_batch=2)
    given = (writer.put(name) for name in ("a", "b", "c", "bad"))
    await asyncio.gather(*given, return_exceptions=True)
    writes.close()
    assert announced == [["A", "B"], ["C"]]


async def test_announcement_that_fails_does_not_hold_up_what_waits(database: Database) -> None:
    def announce(results: Sequence[str]) -> None:
        raise OSError("Too many open files")

    writes, written = GroupCommit(database), Written(database)
    writer = CoalescingWriter(writes, written, announce, max_batch=2)
    async with asyncio.timeout(30):
        results = await asyncio.gather(*(writer.put(name) for name in ("a", "b", "c")))
    writes.close()
    assert results == ["A", "B", "C"]
