"""Grouped writes: each is done or undone alone, and all that came are committed."""

import threading

import pytest
from sqlalchemy import Connection, text

from sagehen.domain.objects import Bucket
from sagehen.errors import Conflict
from sagehen.objects.grouped import GroupedWrites
from sagehen.store import object_rows as rows
from sagehen.store.database import Database


def names(database: Database) -> set[str]:
    with database.read() as connection:
        return {bucket.name for bucket in rows.list_buckets(connection)}


def test_many_threads_write(database: Database) -> None:
    writes = GroupedWrites(database)

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
    writes = GroupedWrites(database)

    def end_early(connection: Connection) -> None:
        rows.insert_bucket(connection, Bucket("lost", 0))
        connection.execute(text("ROLLBACK"))

    with pytest.raises(Exception, match="no such savepoint"):
        writes.run(end_early)
    writes.run(lambda connection: rows.insert_bucket(connection, Bucket("kept", 0)))
    assert names(database) == {"kept"}
