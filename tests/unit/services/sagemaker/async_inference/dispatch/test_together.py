"""What is written together: each hears what came of it, and one at fault harms no other."""

import asyncio
from collections.abc import Sequence

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from sagehen.base.errors import Conflict, StateFull
from sagehen.services.s3 import object_rows as rows
from sagehen.services.s3.storage.records import Bucket
from sagehen.services.sagemaker.async_inference.dispatch.completion import CoalescingWriter
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit


class Written:
    """Buckets by their names, and which came together."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.together: list[list[str]] = []

    def __call__(self, connection: Connection, names: Sequence[str]) -> list[str]:
        self.together.append(list(names))
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
    together = CoalescingWriter(writes, written)
    names = [f"b{number:03}" for number in range(200)]
    results = await asyncio.gather(*(together.put(name) for name in names))
    writes.close()
    assert results == [name.upper() for name in names]
    assert written.names == names
    assert [len(batch) for batch in written.together] == [128, 72]


async def test_one_at_fault_is_alone(database: Database) -> None:
    writes, written = GroupCommit(database), Written(database)
    together = CoalescingWriter(writes, written)
    given = (together.put(name) for name in ("a", "bad", "b"))
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
    together = CoalescingWriter(writes, written)
    given = (together.put(name) for name in ("a", why, "b"))
    results = await asyncio.gather(*given, return_exceptions=True)
    assert [type(result) for result in results] == [error] * 3
    assert len(written.together) == 1
    assert await together.put("c") == "C", "it is tried again"
    writes.close()
    assert written.names == ["c"]


async def test_who_does_not_wait_any_more_is_left_out(database: Database) -> None:
    writes, written = GroupCommit(database), Written(database)
    together = CoalescingWriter(writes, written)
    waits, goes = (asyncio.ensure_future(together.put(name)) for name in ("a", "b"))
    await asyncio.sleep(0)
    goes.cancel()
    assert await waits == "A"
    with pytest.raises(asyncio.CancelledError):
        await goes
    writes.close()
    assert written.names == ["a"]
