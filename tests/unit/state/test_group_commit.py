"""Grouped writes: each is done or undone alone, and all that came are committed."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, text

from sagehen.base.errors import Conflict, StateFull
from sagehen.services.s3 import object_rows as rows
from sagehen.services.s3.storage.records import Bucket
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit


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
        go_on.wait(60)

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
                both.wait(60)
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
